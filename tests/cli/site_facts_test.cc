// Ranges of layers and names in tables.
#include "cli/site_facts.h"
#include "cli/site_table.h"
#include "cli/style.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
namespace {

using ::testing::ElementsAre;

TEST(LayerRanges, AreConsecutiveOrRegular) {
  EXPECT_EQ(layerRanges({}), "");
  EXPECT_EQ(layerRanges({5}), "L5");
  EXPECT_EQ(layerRanges({0, 1}), "L0–L1");
  EXPECT_EQ(layerRanges({0, 1, 2, 3}), "L0–L3");
  EXPECT_EQ(layerRanges({0, 2}), "L0, L2");
  EXPECT_EQ(layerRanges({1, 3, 5}), "L1–L5 by 2");
  EXPECT_EQ(layerRanges({0, 1, 2, 4, 5, 6}), "L0–L2, L4–L6");
  EXPECT_EQ(layerRanges({0, 4, 5, 6, 9}), "L0, L4–L6, L9");
}

TEST(TableNames, DoNotDependOnWhereTheModelsLie) {
  EXPECT_THAT(tableNames({"/a/b/one/model.onnx", "/a/b/two/model.onnx"}),
              ElementsAre("one", "two"));
  EXPECT_THAT(tableNames({"./one/model.onnx", "two/x.onnx"}), ElementsAre("one", "two/x.onnx"));
  EXPECT_THAT(tableNames({"/a/x.onnx", "/a/y.onnx"}), ElementsAre("x.onnx", "y.onnx"));
  EXPECT_THAT(tableNames({"/a/x.onnx", "/a/x.onnx"}), ElementsAre("x.onnx", "x.onnx"));
  EXPECT_THAT(tableNames({"model.onnx", "b/model.onnx"}), ElementsAre("model.onnx", "b"));
  EXPECT_THAT(tableNames({}), ElementsAre());
}

TEST(MatchFailureJson, AlwaysHasAHint) {
  MatchFailure failure;
  failure.code = ReasonCode::CacheEscapes;
  failure.node = "n";
  OrderedJson json = reasonJson(failure);
  EXPECT_EQ(json["code"], "cache-escapes");
  EXPECT_EQ(json["node"], "n");
  EXPECT_NE(json["hint"], "");
}

} // namespace
} // namespace kvopt
