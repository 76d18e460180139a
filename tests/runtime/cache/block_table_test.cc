// Sequences over a pool: growth over several blocks, truncation, shared beginnings.
#include "runtime/cache/block_table.h"

#include "support/diagnostic.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

template <class T> T tableValueOf(llvm::Expected<T> value) {
  if (value)
    return std::move(*value);
  throw std::runtime_error(takeDiagnostic(value.takeError()).str());
}
std::string tableMessageOf(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).message : "";
}

class BlockTableTest : public testing::Test {
protected:
  static constexpr int64_t size = 5;

  std::shared_ptr<BlockManager> makePool(int64_t blocks = 6) {
    BlockManagerOptions options;
    options.blockTokens = size;
    options.maxBlocks = blocks;
    options.parts = {{ElementType::Float, {2, size}, 1}};
    options.allocator = allocator;
    options.poison = true;
    return tableValueOf(BlockManager::create(std::move(options)));
  }

  /// Appends tokens that say their number, and `mark`.
  static void append(BlockTable& table, int64_t count, float mark = 0) {
    const int64_t before = table.tokens();
    ASSERT_EQ(tableMessageOf(table.reserve(count)), "");
    for (int64_t token = before; token < before + count; ++token) {
      TensorView memory = tableValueOf(
          table.manager().memory(table.blocks()[static_cast<size_t>(token / size)], 0));
      for (int64_t slice = 0; slice < 2; ++slice)
        memory.as<float>()[slice * memory.strides[0] + token % size * memory.strides[1]] =
            static_cast<float>(100 * slice + token) + mark;
    }
    table.advance(count);
  }

  static std::vector<float> contents(const BlockTable& table) {
    std::vector<float> values;
    for (size_t i = 0; i < table.blocks().size(); ++i) {
      TensorView rows = tableValueOf(table.rows(i, 0));
      for (int64_t row = 0; row < rows.shape[1]; ++row)
        values.push_back(rows.as<float>()[row * rows.strides[1]]);
    }
    return values;
  }

  std::shared_ptr<Allocator> allocator = std::make_shared<Allocator>();
  std::shared_ptr<BlockManager> pool = makePool();
};

TEST_F(BlockTableTest, OneStepMayCrossSeveralBlocks) {
  BlockTable table(pool);
  append(table, 3);
  EXPECT_EQ(table.blocks().size(), 1u);
  append(table, 14);
  EXPECT_EQ(table.tokens(), 17);
  EXPECT_EQ(table.blocks(), llvm::ArrayRef<BlockId>({0, 1, 2, 3}));
  EXPECT_EQ(table.tokensAt(2), 5);
  EXPECT_EQ(table.tokensAt(3), 2);
  EXPECT_EQ(pool->state(2), BlockState::Full);
  EXPECT_EQ(pool->state(3), BlockState::Partial);
  std::vector<float> expected;
  for (int token = 0; token < 17; ++token)
    expected.push_back(static_cast<float>(token));
  EXPECT_EQ(contents(table), expected);
}

TEST_F(BlockTableTest, EveryWayToCutASequenceIntoSteps) {
  for (int64_t first = 0; first <= 12; ++first)
    for (int64_t second = 0; first + second <= 12; ++second) {
      BlockTable table(pool);
      append(table, first);
      append(table, second);
      append(table, 12 - first - second);
      EXPECT_EQ(table.blocks().size(), 3u);
      EXPECT_EQ(contents(table).size(), 12u);
      for (size_t token = 0; token < 12; ++token)
        EXPECT_EQ(contents(table)[token], static_cast<float>(token));
    }
  EXPECT_EQ(pool->takenBlocks(), 0);
}

TEST_F(BlockTableTest, OrderIsTheSequencesAndNotThatOfIds) {
  BlockTable first(pool);
  append(first, 5);
  BlockTable second(pool);
  append(second, 5);
  append(first, 5);
  first.clear();
  append(second, 10);
  EXPECT_EQ(second.blocks(), llvm::ArrayRef<BlockId>({1, 0, 2}));
  EXPECT_EQ(contents(second)[14], 14.0f);
}

TEST_F(BlockTableTest, TruncationKeepsTheFirstAndGivesBackTheRest) {
  BlockTable table(pool);
  append(table, 17);
  const int64_t warm = pool->memoryBytes();
  ASSERT_EQ(tableMessageOf(table.truncate(17)), "");
  EXPECT_EQ(table.blocks().size(), 4u);
  ASSERT_EQ(tableMessageOf(table.truncate(7)), "");
  EXPECT_EQ(table.blocks(), llvm::ArrayRef<BlockId>({0, 1}));
  EXPECT_EQ(tableValueOf(pool->tokens(1)), 2);
  EXPECT_EQ(pool->state(1), BlockState::Partial);
  EXPECT_EQ(pool->takenBlocks(), 2);
  EXPECT_EQ(pool->memoryBytes(), warm);
  EXPECT_EQ(tableMessageOf(table.truncate(8)), "cannot keep 8 of 7 tokens");
  EXPECT_NE(tableMessageOf(table.truncate(-1)), "");
  // The order in which blocks are given back is that in which they come again.
  append(table, 10, 0.5f);
  EXPECT_EQ(table.blocks(), llvm::ArrayRef<BlockId>({0, 1, 2, 3}));
  EXPECT_EQ(contents(table)[6], 6.0f);
  EXPECT_EQ(contents(table)[7], 7.5f);
  ASSERT_EQ(tableMessageOf(table.truncate(0)), "");
  EXPECT_TRUE(table.blocks().empty());
  EXPECT_EQ(pool->takenBlocks(), 0);
}

TEST_F(BlockTableTest, AnExhaustedPoolLeavesTheSequenceAsItWas) {
  BlockTable table(pool);
  append(table, 28);
  std::vector<float> before = contents(table);
  EXPECT_EQ(tableMessageOf(table.reserve(3)),
            "1 more blocks are needed, but of the pool's 6 only 0 are free");
  EXPECT_NE(tableMessageOf(table.reserve(INT64_MAX)), "");
  EXPECT_EQ(table.tokens(), 28);
  EXPECT_EQ(contents(table), before);
  append(table, 2);
  EXPECT_EQ(table.tokens(), 30);
}

TEST_F(BlockTableTest, WhatWasMadeReadyCanBeGivenBack) {
  BlockTable table(pool);
  append(table, 4);
  ASSERT_EQ(tableMessageOf(table.reserve(9)), "");
  EXPECT_EQ(pool->takenBlocks(), 3);
  table.cancel();
  EXPECT_EQ(pool->takenBlocks(), 1);
  EXPECT_EQ(contents(table).size(), 4u);
}

TEST_F(BlockTableTest, ForksShareUntilOneWrites) {
  BlockTable first(pool);
  append(first, 7);
  BlockTable second = first.fork();
  EXPECT_EQ(pool->takenBlocks(), 2);
  EXPECT_EQ(pool->holders(0), 2);
  const int64_t shared = pool->memoryBytes();
  append(first, 1, 0.25f);
  EXPECT_EQ(pool->memoryBytes(), shared + shared / 2);
  EXPECT_NE(first.blocks()[1], second.blocks()[1]);
  EXPECT_EQ(first.blocks()[0], second.blocks()[0]);
  append(second, 2, 0.5f);
  // The second one was the last to hold its block: it went on in place.
  EXPECT_EQ(pool->takenBlocks(), 3);
  EXPECT_EQ(contents(first), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7.25f}));
  EXPECT_EQ(contents(second), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7.5f, 8.5f}));
  first.clear();
  EXPECT_EQ(pool->takenBlocks(), 2);
  EXPECT_EQ(contents(second).size(), 9u);
}

TEST_F(BlockTableTest, ATruncatedForkDoesNotOverwriteWhatOthersRead) {
  BlockTable first(pool);
  append(first, 10);
  BlockTable second = first.fork();
  ASSERT_EQ(tableMessageOf(second.truncate(6)), "");
  append(second, 3, 0.5f);
  EXPECT_EQ(contents(first), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(contents(second), (std::vector<float>{0, 1, 2, 3, 4, 5, 6.5f, 7.5f, 8.5f}));
}

TEST_F(BlockTableTest, ACopyOnWriteNeedsABlockToo) {
  pool = makePool(2);
  BlockTable first(pool);
  append(first, 7);
  BlockTable second = first.fork();
  EXPECT_EQ(tableMessageOf(second.reserve(1)), "all 2 blocks of the pool are taken");
  first.clear();
  append(second, 1);
  EXPECT_EQ(contents(second).size(), 8u);
}

TEST_F(BlockTableTest, MemoryIsNotAllocatedForWhatWillBeAdopted) {
  BlockTable table(pool);
  ASSERT_EQ(tableMessageOf(table.reserve(12, /*willAdopt=*/true)), "");
  EXPECT_EQ(table.blocks().size(), 3u);
  EXPECT_EQ(pool->memoryBytes(), 2 * size * 4);
}

TEST_F(BlockTableTest, ShortMemoryGivesBackWhatWasTaken) {
  allocator = std::make_shared<FailingAllocator>(2);
  pool = makePool();
  BlockTable table(pool);
  append(table, 5);
  EXPECT_NE(tableMessageOf(table.reserve(11)), "");
  EXPECT_EQ(pool->takenBlocks(), 1);
  append(table, 11);
  EXPECT_EQ(table.tokens(), 16);
}

} // namespace
} // namespace kvopt
