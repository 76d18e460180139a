// The pool's states, order, memory, holders and refusals.
#include "runtime/cache/block_manager.h"

#include "ir/tensor.h"
#include "support/diagnostic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

template <class T> T valueOf(llvm::Expected<T> value) {
  if (value)
    return std::move(*value);
  throw std::runtime_error(takeDiagnostic(value.takeError()).str());
}

std::string messageOf(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).message : "";
}
template <class T> std::string messageOf(llvm::Expected<T> value) {
  return messageOf(value.takeError());
}

constexpr int64_t blockBytes = 2 * (32 * 512 * 128 * 2);

/// Keys and values of 32 heads of 128 f16 numbers.
BlockManagerOptions usual(int64_t blocks = 8) {
  BlockManagerOptions options;
  options.blockTokens = 512;
  options.maxBlocks = blocks;
  options.parts = {{ElementType::Float16, {1, 32, 512, 128}, 2},
                   {ElementType::Float16, {1, 32, 128, 512}, 3}};
  options.allocator = std::make_shared<Allocator>();
  return options;
}

TEST(BlockManager, RefusesSizesThatMakeNoPool) {
  BlockManagerOptions options = usual();
  options.blockTokens = 0;
  EXPECT_NE(messageOf(BlockManager::create(options)), "");
  options = usual(0);
  EXPECT_NE(messageOf(BlockManager::create(options)), "");
  options = usual();
  options.parts[0].tokenAxis = 1;
  EXPECT_EQ(messageOf(BlockManager::create(options)),
            "extents [1, 32, 512, 128] have no 512 tokens on axis 1");
  options.parts[0].tokenAxis = 4;
  EXPECT_NE(messageOf(BlockManager::create(options)), "");
  options = usual();
  options.parts[0].shape = {INT64_MAX / 4, 32, 512, 128};
  EXPECT_NE(messageOf(BlockManager::create(options)), "");
  options.parts[0].shape = {-1, 32, 512, 128};
  EXPECT_NE(messageOf(BlockManager::create(options)), "");
}

TEST(BlockManager, GivesTheLowestBlockFirstAndTheLastFreedBeforeIt) {
  auto pool = valueOf(BlockManager::create(usual()));
  for (BlockId expected = 0; expected < 4; ++expected)
    EXPECT_EQ(pool->allocate(), expected);
  ASSERT_EQ(messageOf(pool->release(1)), "");
  ASSERT_EQ(messageOf(pool->release(3)), "");
  EXPECT_EQ(pool->allocate(), 3);
  EXPECT_EQ(pool->allocate(), 1);
  EXPECT_EQ(pool->allocate(), 4);
}

TEST(BlockManager, AnExhaustedPoolIsAnAnswer) {
  auto pool = valueOf(BlockManager::create(usual()));
  std::set<BlockId> given;
  while (std::optional<BlockId> block = pool->allocate())
    given.insert(*block);
  EXPECT_EQ(given.size(), 8u);
  EXPECT_EQ(pool->freeBlocks(), 0);
  EXPECT_EQ(pool->takenBlocks(), 8);
  EXPECT_EQ(valueOf(pool->copy(3, 0)), std::nullopt);
  ASSERT_EQ(messageOf(pool->release(5)), "");
  EXPECT_EQ(pool->freeBlocks(), 1);
  EXPECT_EQ(pool->allocate(), 5);
}

TEST(BlockManager, StatesFollowTokens) {
  auto pool = valueOf(BlockManager::create(usual()));
  EXPECT_EQ(pool->state(0), BlockState::Free);
  const BlockId block = *pool->allocate();
  EXPECT_EQ(pool->state(block), BlockState::Partial);
  EXPECT_EQ(valueOf(pool->tokens(block)), 0);
  ASSERT_EQ(messageOf(pool->setTokens(block, 511)), "");
  EXPECT_EQ(pool->state(block), BlockState::Partial);
  ASSERT_EQ(messageOf(pool->setTokens(block, 512)), "");
  EXPECT_EQ(pool->state(block), BlockState::Full);
  ASSERT_EQ(messageOf(pool->setTokens(block, 3)), "");
  EXPECT_EQ(pool->state(block), BlockState::Partial);
  ASSERT_EQ(messageOf(pool->release(block)), "");
  EXPECT_EQ(pool->state(block), BlockState::Free);
  // Whoever gets it next starts with none.
  EXPECT_EQ(pool->allocate(), block);
  EXPECT_EQ(valueOf(pool->tokens(block)), 0);
}

TEST(BlockManager, MisuseIsAnErrorThatChangesNothing) {
  auto pool = valueOf(BlockManager::create(usual()));
  const BlockId block = *pool->allocate();
  ASSERT_EQ(messageOf(pool->setTokens(block, 7)), "");
  EXPECT_EQ(messageOf(pool->setTokens(block, 513)), "a block of 512 tokens cannot hold 513");
  EXPECT_NE(messageOf(pool->setTokens(block, -1)), "");
  EXPECT_EQ(valueOf(pool->tokens(block)), 7);
  for (BlockId wrong : {BlockId{-1}, BlockId{8}, BlockId{INT64_MAX}}) {
    EXPECT_NE(messageOf(pool->setTokens(wrong, 1)).find("there is no block"), std::string::npos);
    EXPECT_NE(messageOf(pool->acquire(wrong)), "");
    EXPECT_NE(messageOf(pool->release(wrong)), "");
    EXPECT_NE(messageOf(pool->memory(wrong, 0)), "");
    EXPECT_NE(messageOf(pool->tokens(wrong)), "");
    EXPECT_NE(messageOf(pool->copy(wrong, 0)), "");
    EXPECT_EQ(pool->state(wrong), BlockState::Free);
    EXPECT_EQ(pool->holders(wrong), 0);
  }
  EXPECT_EQ(messageOf(pool->setTokens(4, 1)), "block 4 is free");
  EXPECT_EQ(messageOf(pool->memory(4, 0)), "block 4 is free");
  EXPECT_NE(messageOf(pool->copy(block, 8)), "");
  ASSERT_EQ(messageOf(pool->release(block)), "");
  EXPECT_EQ(messageOf(pool->release(block)), "block 0 is free");
  EXPECT_EQ(pool->freeBlocks(), 8);
}

TEST(BlockManager, MemoryComesWithItsFirstUseAndStaysWarm) {
  BlockManagerOptions options = usual();
  auto pool = valueOf(BlockManager::create(options));
  EXPECT_EQ(options.allocator->liveBytes(), 0u);
  const BlockId block = *pool->allocate();
  EXPECT_EQ(pool->memoryBytes(), 0);
  TensorView keys = valueOf(pool->memory(block, 0));
  EXPECT_EQ(keys.shape, (Extents{1, 32, 512, 128}));
  EXPECT_EQ(pool->memoryBytes(), blockBytes / 2);
  EXPECT_EQ(valueOf(pool->memory(block, 1)).shape, (Extents{1, 32, 128, 512}));
  EXPECT_EQ(pool->memoryBytes(), blockBytes);
  EXPECT_EQ(valueOf(pool->memory(block, 0)).data, keys.data);
  ASSERT_EQ(messageOf(pool->release(block)), "");
  EXPECT_EQ(pool->memoryBytes(), blockBytes);
  EXPECT_EQ(pool->allocate(), block);
  EXPECT_EQ(valueOf(pool->memory(block, 0)).data, keys.data);
  EXPECT_EQ(options.allocator->allocations(), 2u);
}

TEST(BlockManager, TrimKeepsTheBlocksThatComeNextWarm) {
  auto pool = valueOf(BlockManager::create(usual()));
  for (BlockId block = 0; block < 4; ++block) {
    pool->allocate();
    valueOf(pool->memory(block, 0));
    valueOf(pool->memory(block, 1));
  }
  for (BlockId block : {3, 2, 1})
    ASSERT_EQ(messageOf(pool->release(block)), "");
  pool->trim(1);
  EXPECT_EQ(pool->memoryBytes(), 2 * blockBytes);
  EXPECT_EQ(pool->allocate(), 1);
  EXPECT_EQ(pool->memoryBytes(), 2 * blockBytes);
  ASSERT_EQ(messageOf(pool->release(1)), "");
  pool->trim();
  EXPECT_EQ(pool->memoryBytes(), blockBytes);
  pool->trim(-3);
  EXPECT_EQ(pool->memoryBytes(), blockBytes);
}

TEST(BlockManager, ABlockIsFreeWhenItsLastHolderGoes) {
  auto pool = valueOf(BlockManager::create(usual()));
  const BlockId block = *pool->allocate();
  EXPECT_TRUE(pool->isWritable(block));
  ASSERT_EQ(messageOf(pool->acquire(block)), "");
  EXPECT_EQ(pool->holders(block), 2);
  EXPECT_FALSE(pool->isWritable(block));
  ASSERT_EQ(messageOf(pool->release(block)), "");
  EXPECT_TRUE(pool->isWritable(block));
  EXPECT_EQ(pool->freeBlocks(), 7);
  ASSERT_EQ(messageOf(pool->release(block)), "");
  EXPECT_EQ(pool->freeBlocks(), 8);
  EXPECT_FALSE(pool->isWritable(block));
  EXPECT_NE(messageOf(pool->acquire(block)), "");
}

BlockManagerOptions small() {
  BlockManagerOptions options;
  options.blockTokens = 3;
  options.maxBlocks = 4;
  options.parts = {{ElementType::Float, {2, 3, 2}, 1}};
  options.allocator = std::make_shared<Allocator>();
  return options;
}

TEST(BlockManager, ACopyHasTheTokensThatWereAskedForAndMemoryOfItsOwn) {
  auto pool = valueOf(BlockManager::create(small()));
  const BlockId block = *pool->allocate();
  TensorView from = valueOf(pool->memory(block, 0));
  for (int64_t i = 0; i < 12; ++i)
    from.as<float>()[i] = static_cast<float>(i);
  ASSERT_EQ(messageOf(pool->setTokens(block, 3)), "");
  const BlockId copied = *valueOf(pool->copy(block, 2));
  EXPECT_EQ(copied, 1);
  EXPECT_EQ(valueOf(pool->tokens(copied)), 2);
  TensorView to = valueOf(pool->memory(copied, 0));
  EXPECT_NE(to.data, from.data);
  for (int64_t slice = 0; slice < 2; ++slice)
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(to.as<float>()[slice * 6 + i], from.as<float>()[slice * 6 + i]);
}

TEST(BlockManager, PoisonedMemoryIsNaN) {
  BlockManagerOptions options = small();
  options.poison = true;
  auto pool = valueOf(BlockManager::create(options));
  pool->allocate();
  TensorView memory = valueOf(pool->memory(0, 0));
  for (int64_t i = 0; i < 12; ++i)
    EXPECT_TRUE(std::isnan(memory.as<float>()[i]));
}

TEST(BlockManager, MemoryThatIsReadWholeIsFinite) {
  for (ElementType element :
       {ElementType::Float, ElementType::Float16, ElementType::BFloat16, ElementType::Double}) {
    BlockManagerOptions options = small();
    options.parts[0].element = element;
    options.readsWhole = true;
    auto numbers = [&] {
      auto pool = valueOf(BlockManager::create(options));
      pool->allocate();
      TensorView memory = valueOf(pool->memory(0, 0));
      std::vector<std::byte> bytes(memory.data, memory.data + memory.byteSize());
      return *floatValues(*valueOf(makeTensor(element, {memory.elementCount()}, std::move(bytes))));
    };
    for (double number : numbers())
      EXPECT_EQ(number, 0);
    options.poison = true;
    for (double number : numbers())
      EXPECT_NEAR(number, 3e4, 100);
  }
}

TEST(BlockManager, AdoptedMemoryIsReadAndNeverWritten) {
  BlockManagerOptions options = small();
  auto pool = valueOf(BlockManager::create(options));
  const BlockId block = *pool->allocate();
  Tensor chunk = valueOf(Tensor::create(options.allocator, ElementType::Float, {2, 3, 2}));
  std::weak_ptr<const void> owner = chunk.owner;
  std::byte* data = chunk.view.data;
  EXPECT_NE(
      messageOf(pool->adopt(
          block, 0, valueOf(Tensor::create(options.allocator, ElementType::Float, {2, 4, 2})))),
      "");
  EXPECT_NE(
      messageOf(pool->adopt(
          block, 0, valueOf(Tensor::create(options.allocator, ElementType::Float, {1, 3, 2})))),
      "");
  ASSERT_EQ(messageOf(pool->adopt(block, 0, std::move(chunk))), "");
  EXPECT_EQ(valueOf(pool->memory(block, 0)).data, data);
  EXPECT_FALSE(pool->isWritable(block));
  // It is not the pool's to keep.
  ASSERT_EQ(messageOf(pool->release(block)), "");
  EXPECT_TRUE(owner.expired());
  EXPECT_EQ(pool->allocate(), block);
  EXPECT_TRUE(pool->isWritable(block));
}

TEST(BlockManager, ShortMemoryIsAnErrorThatTakesNoBlock) {
  BlockManagerOptions options = small();
  auto failing = std::make_shared<FailingAllocator>(1);
  options.allocator = failing;
  auto pool = valueOf(BlockManager::create(options));
  const BlockId block = *pool->allocate();
  valueOf(pool->memory(block, 0));
  ASSERT_EQ(messageOf(pool->setTokens(block, 3)), "");
  EXPECT_NE(messageOf(pool->copy(block, 3)), "");
  EXPECT_EQ(pool->takenBlocks(), 1);
  EXPECT_TRUE((*valueOf(pool->copy(block, 3))) == 1);
}

TEST(BlockManager, ThreadsTakeDifferentBlocks) {
  auto pool = valueOf(BlockManager::create(usual(400)));
  std::vector<std::vector<BlockId>> taken(4);
  std::vector<std::thread> threads;
  for (auto& mine : taken)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        mine.push_back(*pool->allocate());
        if (i % 3 == 0) {
          EXPECT_FALSE(pool->release(mine.back()));
          mine.pop_back();
        }
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  std::set<BlockId> all;
  size_t count = 0;
  for (const auto& mine : taken) {
    all.insert(mine.begin(), mine.end());
    count += mine.size();
  }
  EXPECT_EQ(all.size(), count);
  EXPECT_EQ(pool->takenBlocks(), static_cast<int64_t>(count));
}

} // namespace
} // namespace kvopt
