// BlockTable: blocks of one sequence in the order of its tokens.
#pragma once

#include "runtime/cache/block_manager.h"

namespace kvopt::runtime {

/// Holds blocks of a pool; all but the last are full. Sequences with a common prefix share its
/// blocks; writing to a shared block copies it first.
class BlockTable {
public:
  explicit BlockTable(std::shared_ptr<BlockManager> blockPool) : pool(std::move(blockPool)) {}
  BlockTable(BlockTable&& other) noexcept { swap(other); }
  BlockTable& operator=(BlockTable&& other) noexcept {
    swap(other);
    return *this;
  }
  ~BlockTable() { clear(); }

  /// A table that shares all blocks.
  BlockTable fork() const;

  BlockManager& manager() const { return *pool; }
  const std::shared_ptr<BlockManager>& sharedManager() const { return pool; }
  llvm::ArrayRef<BlockId> blocks() const { return ids; }
  int64_t tokens() const { return count; }
  /// Number of tokens of the block at `index`, which may only be reserved.
  int64_t tokensAt(size_t index) const;

  /// Reserves rows for `more` tokens. Allocates memory, except for blocks that are filled
  /// completely if `willAdopt`, because other memory will become part of them. Fails without any
  /// change if the pool is exhausted or memory is short.
  llvm::Error reserve(int64_t more, bool willAdopt = false);
  /// Releases reserved blocks without tokens.
  void cancel();
  /// Declares that the reserved rows of `more` tokens have been written.
  void advance(int64_t more);

  /// Keeps the first `tokens` tokens. There must be at least that many.
  llvm::Error truncate(int64_t tokens);
  void clear();

  /// Moves the tokens of an incomplete last block to memory of exactly their size.
  llvm::Error pack();

  /// Part `index` of the block at `position`: the rows of its tokens.
  llvm::Expected<TensorView> rows(size_t position, size_t index) const;

private:
  void swap(BlockTable& other) noexcept;
  void dropFrom(size_t position);
  llvm::Error makeLastWritable();

  std::shared_ptr<BlockManager> pool;
  std::vector<BlockId> ids; ///< blocks with tokens, followed by reserved ones
  int64_t count = 0;
};

} // namespace kvopt::runtime
