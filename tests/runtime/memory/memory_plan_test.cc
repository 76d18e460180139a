// Placement: no overlap, alignment, and how far from the lower bound.
#include "runtime/memory/memory_plan.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace kvopt {
using namespace runtime;

namespace {

void checkPlan(llvm::ArrayRef<StorageInterval> intervals, const MemoryPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), intervals.size());
  for (size_t i = 0; i < intervals.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % 64, 0);
    EXPECT_LE(plan.offsets[i] + intervals[i].bytes, plan.peak);
    for (size_t j = 0; j < i; ++j) {
      bool sharesTime = intervals[i].firstUse <= intervals[j].lastUse &&
                        intervals[j].firstUse <= intervals[i].lastUse;
      bool sharesMemory = plan.offsets[i] < plan.offsets[j] + intervals[j].bytes &&
                          plan.offsets[j] < plan.offsets[i] + intervals[i].bytes;
      EXPECT_FALSE(sharesTime && sharesMemory) << i << " and " << j;
    }
  }
  EXPECT_GE(plan.peak, plan.lowerBound);
}

TEST(MemoryPlan, ReusesMemoryOfTheDead) {
  std::vector<StorageInterval> intervals = {{100, 0, 1}, {100, 1, 2}, {100, 2, 3}};
  MemoryPlan plan = llvm::cantFail(planMemory(intervals));
  checkPlan(intervals, plan);
  EXPECT_EQ(plan.peak, 256);
  EXPECT_EQ(plan.lowerBound, 256);
}

TEST(MemoryPlan, EmptyAndZeroSized) {
  EXPECT_EQ(llvm::cantFail(planMemory({})).peak, 0);
  EXPECT_EQ(llvm::cantFail(planMemory(StorageInterval{0, 0, 5})).peak, 0);
}

TEST(MemoryPlan, OverflowIsAnError) {
  std::vector<StorageInterval> intervals = {{INT64_MAX - 64, 0, 1}, {INT64_MAX - 64, 0, 1}};
  llvm::Expected<MemoryPlan> plan = planMemory(intervals);
  ASSERT_FALSE(static_cast<bool>(plan));
  llvm::consumeError(plan.takeError());
}

TEST(MemoryPlan, RandomIntervalsNeverOverlapAndStayNearTheBound) {
  std::mt19937 random(1);
  double worst = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<StorageInterval> intervals;
    for (unsigned i = 0, count = random() % 80; i < count; ++i) {
      int64_t first = random() % 60;
      intervals.push_back({static_cast<int64_t>(random() % 10000), first,
                           first + static_cast<int64_t>(random() % 12)});
    }
    MemoryPlan plan = llvm::cantFail(planMemory(intervals));
    checkPlan(intervals, plan);
    if (plan.lowerBound > 0)
      worst =
          std::max(worst, static_cast<double>(plan.peak) / static_cast<double>(plan.lowerBound));
  }
  RecordProperty("worst_ratio_to_bound", std::to_string(worst));
  EXPECT_LE(worst, 1.5);
}

/// Of the 20,000 blocks that are all live at the end, every pair would be looked at.
TEST(MemoryPlan, ManyBlocksThatAreLiveTogether) {
  constexpr int64_t count = 20000;
  std::vector<StorageInterval> intervals;
  for (int64_t i = 0; i < count; ++i)
    intervals.push_back({64 * (1 + i % 3), i, count});
  MemoryPlan plan = llvm::cantFail(planMemory(intervals));
  EXPECT_EQ(plan.peak, plan.lowerBound);
  std::vector<std::pair<int64_t, int64_t>> placed;
  for (size_t i = 0; i < intervals.size(); ++i)
    placed.emplace_back(plan.offsets[i], intervals[i].bytes);
  std::sort(placed.begin(), placed.end());
  for (size_t i = 1; i < placed.size(); ++i)
    EXPECT_LE(placed[i - 1].first + placed[i - 1].second, placed[i].first);
}

/// The same blocks, of which every other one dies soon, are placed by time as well.
TEST(MemoryPlan, ManyBlocksReuseTheMemoryOfTheDead) {
  constexpr int64_t count = 30000;
  std::vector<StorageInterval> intervals;
  for (int64_t i = 0; i < count; ++i)
    intervals.push_back({64, i, i % 2 == 0 ? i + 1 : count});
  MemoryPlan plan = llvm::cantFail(planMemory(intervals));
  EXPECT_LE(plan.peak, plan.lowerBound + 128);
}

} // namespace
} // namespace kvopt
