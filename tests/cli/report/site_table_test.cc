// Names in tables.
#include "cli/report/site_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace cli;

namespace {

using ::testing::ElementsAre;

TEST(TableNames, DoNotDependOnWhereTheModelsLie) {
  EXPECT_THAT(tableNames({"/a/b/one/model.onnx", "/a/b/two/model.onnx"}),
              ElementsAre("one", "two"));
  EXPECT_THAT(tableNames({"./one/model.onnx", "two/x.onnx"}), ElementsAre("one", "two/x.onnx"));
  EXPECT_THAT(tableNames({"/a/x.onnx", "/a/y.onnx"}), ElementsAre("x.onnx", "y.onnx"));
  EXPECT_THAT(tableNames({"/a/x.onnx", "/a/x.onnx"}), ElementsAre("x.onnx", "x.onnx"));
  EXPECT_THAT(tableNames({"model.onnx", "b/model.onnx"}), ElementsAre("model.onnx", "b"));
  EXPECT_THAT(tableNames({}), ElementsAre());
}

} // namespace
} // namespace kvopt
