// Loops run each index once: nested, from several threads, with more threads than cores.
#include "runtime/threads/thread_pool.h"

#include "runtime/threads/cpu_count.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace runtime;

namespace {

TEST(ThreadPool, EveryIndexOnce) {
  for (unsigned threads : {0u, 1u, 2u, 5u}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 3, 100, 1000}) {
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

TEST(ThreadPool, CallersShareOne) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([&pool] {
      for (int round = 0; round < 300; ++round) {
        std::vector<int> squares(40);
        pool.parallelFor(
            40, [&](int64_t i) { squares[static_cast<size_t>(i)] = static_cast<int>(i * i); });
        // What the bodies wrote is visible once the loop is over.
        for (int i = 0; i < 40; ++i)
          ASSERT_EQ(squares[static_cast<size_t>(i)], i * i);
      }
    });
  for (std::thread& caller : callers)
    caller.join();
}

TEST(ThreadPool, NoMoreCallsAtATimeThanThreads) {
  ThreadPool pool(3);
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  for (int round = 0; round < 20; ++round)
    pool.parallelFor(60, [&](int64_t) {
      int now = ++running;
      int seen = most;
      while (seen < now && !most.compare_exchange_weak(seen, now)) {
      }
      --running;
    });
  EXPECT_LE(most, 3);
}

TEST(ThreadPool, AnExceptionReachesTheCallerWhenNoThreadUsesTheLoop) {
  ThreadPool pool(3);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> inside = 0;
    const auto body = [&](int64_t i) {
      ++inside;
      if (i == round % 40) {
        --inside;
        throw std::bad_alloc();
      }
      --inside;
    };
    EXPECT_THROW(pool.parallelFor(40, body), std::bad_alloc);
    EXPECT_EQ(inside, 0);
  }
  std::atomic<int> calls = 0;
  pool.parallelFor(40, [&](int64_t) { ++calls; });
  EXPECT_EQ(calls, 40);
}

TEST(ThreadPool, ZeroStandsForTheCores) {
  EXPECT_EQ(ThreadPool(0).threads(), usableCores());
  EXPECT_EQ(ThreadPool().threads(), usableCores());
  EXPECT_EQ(ThreadPool(7).threads(), 7u);
}

} // namespace
} // namespace kvopt
