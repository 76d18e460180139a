// Loops run each index once, nested ones too.
#include "runtime/thread_pool.h"

#include <gtest/gtest.h>

namespace kvopt {
namespace {

TEST(ThreadPool, EveryIndexOnce) {
  for (unsigned threads : {0u, 1u, 2u, 5u}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 3, 100}) {
      for (int round = 0; round < 50; ++round) {
        std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
        pool.parallelFor(count, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
        for (const std::atomic<int>& n : calls)
          ASSERT_EQ(n, 1);
      }
    }
  }
}

TEST(ThreadPool, NestedLoopsRunToTheEnd) {
  ThreadPool pool(3);
  std::atomic<int> calls = 0;
  pool.parallelFor(10, [&](int64_t) { pool.parallelFor(10, [&](int64_t) { ++calls; }); });
  EXPECT_EQ(calls, 100);
}

} // namespace
} // namespace kvopt
