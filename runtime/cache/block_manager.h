// BlockManager: pool of cache blocks for sequences.
#pragma once

#include "runtime/memory/buffer.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace kvopt::runtime {

/// Index of a block of one BlockManager. Ids do not reflect the order of tokens, which is that of a
/// BlockTable.
using BlockId = int64_t;

/// Part of a block that belongs to one cache: a tensor with one row per token along `tokenAxis`.
struct BlockPart {
  ir::ElementType element = ir::ElementType::Float;
  Extents shape; ///< the extent of the token axis is the number of tokens of a block
  unsigned tokenAxis = 0;
};

struct BlockManagerOptions {
  int64_t blockTokens = 0;
  int64_t maxBlocks = 0;
  std::vector<BlockPart> parts;
  std::shared_ptr<Allocator> allocator;
  /// Fill new memory with NaN, to detect reads of rows that were not written.
  bool poison = false;
  /// Rows that were not written are read, and must be finite. New memory is zero, or large numbers
  /// if it is to be poisoned.
  bool readsWhole = false;
};

enum class BlockState {
  Free,    ///< without holder
  Partial, ///< in use, with room for more tokens
  Full,
};

/// Blocks with a fixed number of tokens, each with one tensor for every cache. Every allocation or
/// acquisition adds a holder; a block without holders is free. The block freed last is allocated
/// first; blocks that were never used follow in ascending order.
///
///  Memory is allocated on the first access to a tensor of a block. A free block keeps its memory
///  until `trim` releases it.
///
///  An exhausted pool is a normal result; misuse is an error. After an error, nothing has changed.
///  All members may be called from several threads. Holders synchronize access to contents: only
///  the sole holder of a block may write it.
class BlockManager {
public:
  /// Fails for sizes that are not positive, for parts whose token axis does not have the extent
  /// `blockTokens`, and for parts whose size overflows.
  static llvm::Expected<std::shared_ptr<BlockManager>> create(BlockManagerOptions options);
  BlockManager(const BlockManager&) = delete;
  BlockManager& operator=(const BlockManager&) = delete;

  int64_t blockTokens() const { return options.blockTokens; }
  int64_t maxBlocks() const { return options.maxBlocks; }
  size_t partCount() const { return options.parts.size(); }
  const BlockPart& part(size_t index) const { return options.parts[index]; }
  const std::shared_ptr<Allocator>& allocator() const { return options.allocator; }

  /// A block with one holder and no tokens; nullopt if all blocks are in use.
  std::optional<BlockId> allocate();
  /// Adds a holder.
  llvm::Error acquire(BlockId block);
  /// Removes a holder.
  llvm::Error release(BlockId block);
  /// Sets the number of rows that hold tokens.
  llvm::Error setTokens(BlockId block, int64_t tokens);

  BlockState state(BlockId block) const;
  llvm::Expected<int64_t> tokens(BlockId block) const;
  /// Number of holders; 0 for a free block.
  int64_t holders(BlockId block) const;
  /// Whether the holder may write the block: it is the only holder, and the block owns its memory.
  bool isWritable(BlockId block) const;
  int64_t freeBlocks() const;
  int64_t takenBlocks() const { return maxBlocks() - freeBlocks(); }
  /// Memory of all blocks in bytes, including free ones.
  int64_t memoryBytes() const;

  /// Tensor of part `index` of a block in use; allocated on first access.
  llvm::Expected<TensorView> memory(BlockId block, size_t index);
  /// Makes existing memory part `index` of a block. It must have the part's element type and
  /// extents, or fewer rows, which then limit the block's rows. It is never written.
  llvm::Error adopt(BlockId block, size_t index, Tensor tensor);
  /// A new block with the first `tokens` tokens of another; nullopt if all blocks are in use.
  llvm::Expected<std::optional<BlockId>> copy(BlockId block, int64_t tokens);

  /// Releases the memory of free blocks, except for the next `warmBlocks` to be allocated.
  void trim(int64_t warmBlocks = 0);

private:
  struct Block {
    int64_t holders = 0;
    int64_t tokens = 0;
    std::vector<Tensor> parts; ///< without data if not allocated yet
    std::vector<bool> adopted;
  };

  explicit BlockManager(BlockManagerOptions given) : options(std::move(given)) {}
  const Block* findTaken(BlockId block) const;
  llvm::Expected<Block*> taken(BlockId block);
  std::optional<BlockId> take();
  void give(BlockId block);
  llvm::Expected<TensorView> memoryOf(Block& block, size_t index);
  llvm::Error copyRows(Block& to, Block& from, int64_t tokens);

  BlockManagerOptions options;
  mutable std::mutex guard;
  std::vector<Block> blocks;      ///< blocks that were ever allocated
  std::vector<BlockId> freeStack; ///< the free ones among them
};

} // namespace kvopt::runtime
