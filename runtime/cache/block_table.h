// BlockTable: the blocks of one sequence in the order of its tokens.
#pragma once

#include "runtime/cache/block_manager.h"

namespace kvopt::runtime {

/// Holds blocks of a pool, all but the last of which are full. Sequences that have a beginning in
/// common share its blocks; who writes into a shared one gets a copy of it first.
class BlockTable {
public:
  explicit BlockTable(std::shared_ptr<BlockManager> blockPool) : pool(std::move(blockPool)) {}
  BlockTable(BlockTable&& other) noexcept { swap(other); }
  BlockTable& operator=(BlockTable&& other) noexcept {
    swap(other);
    return *this;
  }
  ~BlockTable() { clear(); }

  /// Shares all blocks.
  BlockTable fork() const;

  BlockManager& manager() const { return *pool; }
  const std::shared_ptr<BlockManager>& sharedManager() const { return pool; }
  llvm::ArrayRef<BlockId> blocks() const { return ids; }
  int64_t tokens() const { return count; }
  /// Tokens of the block at `index`, which may be one that was only made ready.
  int64_t tokensAt(size_t index) const;

  /// Makes the rows of `more` tokens ready to be written, with memory unless a part of them will be
  /// adopted: blocks that are filled whole when `willAdopt`. Fails, with nothing changed, when the
  /// pool is exhausted or memory is short.
  llvm::Error reserve(int64_t more, bool willAdopt = false);
  /// Gives back what was made ready and not used.
  void cancel();
  /// The rows of `more` tokens have been written; they must have been made ready.
  void advance(int64_t more);

  /// Keeps the first `tokens` tokens, of which there must be as many.
  llvm::Error truncate(int64_t tokens);
  void clear();

  /// Moves the tokens of a last block that is not full to memory that has room for no more.
  llvm::Error pack();

  /// Part `index` of the block at `position`: the rows of its tokens.
  llvm::Expected<TensorView> rows(size_t position, size_t index) const;

private:
  void swap(BlockTable& other) noexcept;
  void dropFrom(size_t position);
  llvm::Error makeLastWritable();

  std::shared_ptr<BlockManager> pool;
  std::vector<BlockId> ids; ///< those that hold tokens, and then those that are ready
  int64_t count = 0;
};

} // namespace kvopt::runtime
