// Delta debugging over lists.
#include "driver/reduce/chunks.h"

#include <gmock/gmock.h>

#include <set>

namespace kvopt {
using namespace driver;

namespace {

using testing::ElementsAre;

std::vector<std::string> numbers(size_t count) {
  std::vector<std::string> items;
  for (size_t i = 0; i < count; ++i)
    items.push_back(std::to_string(i));
  return items;
}

/// A list of which only chunks without the needed items can be removed.
struct Needed {
  std::set<std::string> items;
  size_t trials = 0;

  llvm::Expected<bool> operator()(llvm::ArrayRef<std::string> chunk) {
    ++trials;
    for (const std::string& item : chunk)
      if (items.count(item) != 0)
        return false;
    return true;
  }
};

TEST(Chunks, OnlyNeededItemsRemain) {
  Needed needed{{"3", "700", "701"}};
  auto remaining = removeInChunks(numbers(1000), SIZE_MAX, needed);
  ASSERT_TRUE(static_cast<bool>(remaining));
  EXPECT_THAT(*remaining, ElementsAre("3", "700", "701"));
  // A few chunks for each size; single items would take a thousand.
  EXPECT_LT(needed.trials, 100u);
}

TEST(Chunks, EverythingIsRemovedAtOnce) {
  Needed needed;
  auto remaining = removeInChunks(numbers(1000), SIZE_MAX, needed);
  ASSERT_TRUE(static_cast<bool>(remaining));
  EXPECT_TRUE(remaining->empty());
  EXPECT_EQ(needed.trials, 1u);
}

TEST(Chunks, AreAtMostTheLargest) {
  size_t most = 0;
  auto remaining = removeInChunks(numbers(100), 50, [&](llvm::ArrayRef<std::string> chunk) {
    most = std::max(most, chunk.size());
    return llvm::Expected<bool>(false);
  });
  ASSERT_TRUE(static_cast<bool>(remaining));
  EXPECT_EQ(remaining->size(), 100u);
  EXPECT_EQ(most, 50u);
}

TEST(Chunks, AnEmptyListHasNoTrials) {
  Needed needed;
  auto remaining = removeInChunks({}, SIZE_MAX, needed);
  ASSERT_TRUE(static_cast<bool>(remaining));
  EXPECT_TRUE(remaining->empty());
  EXPECT_EQ(needed.trials, 0u);
}

TEST(Chunks, AnItemThatAnotherOneNeedsGoesLater) {
  // "0" can be removed only after "1".
  std::set<std::string> present = {"0", "1"};
  auto remaining = removeInChunks(numbers(2), 1, [&](llvm::ArrayRef<std::string> chunk) {
    if (chunk.front() == "0" && present.count("1") != 0)
      return llvm::Expected<bool>(false);
    present.erase(chunk.front());
    return llvm::Expected<bool>(true);
  });
  ASSERT_TRUE(static_cast<bool>(remaining));
  EXPECT_TRUE(remaining->empty());
}

TEST(Chunks, AnErrorEnds) {
  size_t trials = 0;
  auto remaining = removeInChunks(
      numbers(8), SIZE_MAX, [&](llvm::ArrayRef<std::string>) -> llvm::Expected<bool> {
        ++trials;
        return llvm::createStringError(llvm::inconvertibleErrorCode(), "full disk");
      });
  EXPECT_FALSE(static_cast<bool>(remaining));
  llvm::consumeError(remaining.takeError());
  EXPECT_EQ(trials, 1u);
}

} // namespace
} // namespace kvopt
