// Reports that compared nothing, or something that differs.
#include "runtime/equivalence/reference.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace runtime;

namespace {

TEST(ReferenceTest, AReportInWhichNothingWasComparedIsNotEqual) {
  ComparisonReport report;
  EXPECT_FALSE(report.equal());
  EXPECT_EQ(report.worst(), nullptr);
  report.steps.resize(2);
  report.steps[0].outputs.push_back({"empty", {}, 5});
  EXPECT_FALSE(report.equal());
  Comparison fine;
  fine.compared = 1;
  report.steps[1].caches.push_back({"cache", fine, 0});
  EXPECT_TRUE(report.equal());
  fine.violations = 1;
  report.steps[1].outputs.push_back({"wrong", fine, 0});
  EXPECT_FALSE(report.equal());
}

} // namespace
} // namespace kvopt
