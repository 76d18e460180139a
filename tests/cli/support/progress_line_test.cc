// What the line says.
#include "cli/support/progress.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace cli;

namespace {

TEST(ProgressText, SaysTheShareAndTheTimeLeft) {
  EXPECT_EQ(progressText("comparing", 1, 4, 3), "comparing: 25 %, 9 s left");
  EXPECT_EQ(progressText("comparing", 4, 4, 3), "comparing: 100 %, 0 s left");
  EXPECT_EQ(progressText("comparing", 1, 101, 2), "comparing: 0 %, 3 min 20 s left");
  EXPECT_EQ(progressText("comparing", 1, 7501, 1), "comparing: 0 %, 2 h 5 min left");
}

TEST(ProgressText, SaysTheTimeWhereNoShareIsKnown) {
  EXPECT_EQ(progressText("reading m.onnx", 0, 0, 1.5), "reading m.onnx, 2 s");
  EXPECT_EQ(progressText("comparing", 0, 4, 61), "comparing, 1 min 1 s");
}

TEST(ProgressText, IsEmptyInTheFirstSecond) { EXPECT_EQ(progressText("comparing", 1, 4, 0.9), ""); }

} // namespace
} // namespace kvopt
