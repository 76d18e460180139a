// Working memory is taken and given back like a stack, and kept.
#include "runtime/memory/scratch_stack.h"

#include "support/diagnostic.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kvopt {
using namespace runtime;

namespace {

TEST(ScratchStack, KeepsMemoryForTheNext) {
  auto allocator = std::make_shared<Allocator>();
  ScratchStack stack(allocator);
  ScratchStack::Mark empty = stack.mark();
  for (int round = 0; round < 5; ++round) {
    ScratchStack::Memory outer = llvm::cantFail(stack.take(1000));
    ScratchStack::Mark inner = stack.mark();
    ScratchStack::Memory nested = llvm::cantFail(stack.take(70000));
    EXPECT_EQ(nested.bytes.size(), 70000u);
    EXPECT_EQ(nested.allocated != 0, round == 0);
    std::memset(outer.bytes.data(), 1, outer.bytes.size());
    std::memset(nested.bytes.data(), 2, nested.bytes.size());
    EXPECT_EQ(outer.bytes.back(), std::byte{1});
    stack.returnTo(inner);
    EXPECT_EQ(llvm::cantFail(stack.take(10)).bytes.data(), nested.bytes.data());
    stack.returnTo(empty);
  }
  EXPECT_EQ(allocator->allocations(), 2u);
  EXPECT_EQ(stack.peakBytes(), 71000u);
  EXPECT_EQ(stack.reservedBytes(), allocator->liveBytes());
  stack.restartPeak();
  EXPECT_EQ(stack.peakBytes(), 0u);
  stack.releaseFree();
  EXPECT_EQ(allocator->liveBytes(), 0u);
}

TEST(ScratchStack, GivesUpOnlyWhatIsFree) {
  auto allocator = std::make_shared<Allocator>();
  ScratchStack stack(allocator);
  ScratchStack::Memory used = llvm::cantFail(stack.take(100));
  ScratchStack::Mark mark = stack.mark();
  llvm::cantFail(stack.take(5000));
  stack.returnTo(mark);
  stack.releaseFree();
  std::memset(used.bytes.data(), 1, used.bytes.size());
  EXPECT_EQ(allocator->liveBytes(), stack.reservedBytes());
  EXPECT_LT(allocator->liveBytes(), 5000u);
}

TEST(ScratchStack, ShortMemoryLeavesItUsable) {
  auto allocator = std::make_shared<FailingAllocator>(1);
  ScratchStack stack(allocator);
  llvm::cantFail(stack.take(100));
  llvm::Expected<ScratchStack::Memory> none = stack.take(5000);
  ASSERT_FALSE(static_cast<bool>(none));
  llvm::consumeError(none.takeError());
  EXPECT_EQ(llvm::cantFail(stack.take(5000)).bytes.size(), 5000u);
  EXPECT_EQ(stack.peakBytes(), 5100u);
}

} // namespace
} // namespace kvopt
