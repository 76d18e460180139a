// Memory that comes back is used again, by size class, from any thread, and given up when idle.
#include "runtime/memory/buffer_pool.h"

#include "support/diagnostic.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace kvopt {
using namespace runtime;

namespace {

class BufferPoolTest : public testing::Test {
protected:
  BufferPool::Memory take(size_t bytes) { return llvm::cantFail(pool->take(bytes)); }

  std::shared_ptr<Allocator> allocator = std::make_shared<Allocator>();
  std::unique_ptr<BufferPool> pool = std::make_unique<BufferPool>(allocator);
};

TEST_F(BufferPoolTest, ClassesAreAlignedMonotoneAndNotFarFromTheSize) {
  EXPECT_EQ(BufferPool::classBytes(0), 0u);
  size_t before = 0;
  for (size_t bytes = 1; bytes < size_t{1} << 40; bytes += 1 + bytes / 37) {
    size_t rounded = BufferPool::classBytes(bytes);
    ASSERT_GE(rounded, bytes);
    ASSERT_GE(rounded, before);
    ASSERT_EQ(rounded % bufferAlignment, 0u);
    ASSERT_EQ(BufferPool::classBytes(rounded), rounded);
    ASSERT_LT(rounded, std::max<size_t>(2 * bytes, 1025));
    ASSERT_LE(rounded, bytes > size_t{1} << 20 ? bytes + bytes / 4 + bufferAlignment : SIZE_MAX);
    before = rounded;
  }
  // Nothing that fits in the address space is that large.
  llvm::Expected<BufferPool::Memory> none = pool->take(SIZE_MAX);
  ASSERT_FALSE(static_cast<bool>(none));
  EXPECT_NE(takeDiagnostic(none.takeError()).message.find("cannot allocate"), std::string::npos);
}

TEST_F(BufferPoolTest, WhatComesBackIsUsedAgain) {
  const std::byte* first = nullptr;
  {
    BufferPool::Memory memory = take(5000);
    EXPECT_TRUE(memory.isFresh);
    EXPECT_GE(memory.bytes, 5000u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data) % bufferAlignment, 0u);
    std::memset(memory.data, 1, memory.bytes);
    first = memory.data;
    EXPECT_EQ(pool->bytesInUse(), memory.bytes);
    EXPECT_EQ(pool->freeBytes(), 0u);
  }
  EXPECT_EQ(pool->bytesInUse(), 0u);
  EXPECT_EQ(pool->freeBytes(), BufferPool::classBytes(5000));
  BufferPool::Memory again = take(4500);
  EXPECT_FALSE(again.isFresh);
  EXPECT_EQ(again.data, first);
  BufferPool::Memory other = take(4500);
  EXPECT_TRUE(other.isFresh);
  EXPECT_NE(other.data, again.data);
  EXPECT_EQ(allocator->allocations(), 2u);
}

TEST_F(BufferPoolTest, PeakIsOfTheTimeSinceItsRestart) {
  { BufferPool::Memory a = take(3000), b = take(3000); }
  EXPECT_EQ(pool->peakBytesInUse(), 2 * BufferPool::classBytes(3000));
  pool->restartPeak();
  EXPECT_EQ(pool->peakBytesInUse(), 0u);
  BufferPool::Memory c = take(10);
  EXPECT_EQ(pool->peakBytesInUse(), BufferPool::classBytes(10));
}

TEST_F(BufferPoolTest, IdleMemoryIsGivenUpAndBusyMemoryIsNot) {
  { BufferPool::Memory idle = take(100000); }
  for (uint64_t round = 0; round < 3 * BufferPool::idleRounds; ++round) {
    BufferPool::Memory busy = take(10);
    busy = {};
    pool->endRound();
  }
  EXPECT_EQ(pool->freeBytes(), BufferPool::classBytes(10));
  EXPECT_EQ(allocator->liveBytes(), BufferPool::classBytes(10));
  EXPECT_EQ(allocator->allocations(), 2u);
}

TEST_F(BufferPoolTest, OutlivedByWhatItHandedOut) {
  BufferPool::Memory kept = take(2000);
  { BufferPool::Memory dropped = take(2000); }
  pool = nullptr;
  EXPECT_EQ(allocator->liveBytes(), BufferPool::classBytes(2000));
  std::memset(kept.data, 1, kept.bytes);
  kept = {};
  EXPECT_EQ(allocator->liveBytes(), 0u);
}

TEST_F(BufferPoolTest, ShortMemoryCostsTheFreeOnesFirst) {
  allocator = std::make_shared<FailingAllocator>(1);
  pool = std::make_unique<BufferPool>(allocator);
  { BufferPool::Memory small = take(10); }
  BufferPool::Memory large = take(50000); // fails once, then the small one is given up
  EXPECT_TRUE(large.isFresh);
  EXPECT_EQ(pool->freeBytes(), 0u);

  allocator = std::make_shared<FailingAllocator>(0);
  pool = std::make_unique<BufferPool>(allocator);
  llvm::Expected<BufferPool::Memory> none = pool->take(10);
  ASSERT_FALSE(static_cast<bool>(none));
  llvm::consumeError(none.takeError());
  EXPECT_EQ(pool->bytesInUse(), 0u);
}

TEST_F(BufferPoolTest, ThreadsTakeAndGiveBackAtTheSameTime) {
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id)
    threads.emplace_back([this, id] {
      std::vector<BufferPool::Memory> held;
      for (int i = 0; i < 500; ++i) {
        held.push_back(take(static_cast<size_t>(1 + (i * 37 + id) % 5000)));
        std::memset(held.back().data, id, held.back().bytes);
        if (held.size() > 3) {
          ASSERT_EQ(static_cast<int>(held.front().data[0]), id);
          held.erase(held.begin());
        }
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(pool->bytesInUse(), 0u);
  pool->releaseFree();
  EXPECT_EQ(allocator->liveBytes(), 0u);
}

} // namespace
} // namespace kvopt
