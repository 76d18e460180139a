// Ranges of layers, and reasons.
#include "driver/inspect/site_facts.h"
#include "support/json.h"

#include "support/json.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace driver;
using namespace pattern;

namespace {

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
