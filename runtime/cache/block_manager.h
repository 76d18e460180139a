// BlockManager: the pool that sequences take the blocks of their caches from.
#pragma once

#include "runtime/memory/buffer.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace kvopt::runtime {

/// Names a block of one BlockManager. Ids say nothing about the order of tokens: that is the order
/// of a BlockTable.
using BlockId = int64_t;

/// What a block holds of one cache: a tensor whose axis `tokenAxis` has one row a token.
struct BlockPart {
  ir::ElementType element = ir::ElementType::Float;
  Extents shape; ///< that of the token axis is the number of tokens of a block
  unsigned tokenAxis = 0;
};

struct BlockManagerOptions {
  int64_t blockTokens = 0;
  int64_t maxBlocks = 0;
  std::vector<BlockPart> parts;
  std::shared_ptr<Allocator> allocator;
  /// Fill fresh memory with NaN: nothing may depend on rows that nobody wrote.
  bool poison = false;
  /// Rows that nobody wrote are read, and must be finite: fresh memory is zeros, or large numbers
  /// where it is to be poisoned.
  bool readsWhole = false;
};

enum class BlockState {
  Free,    ///< nobody's
  Partial, ///< somebody's, with room for more tokens
  Full,
};

/// Blocks of a fixed number of tokens, each with one tensor for every cache. A block has as many
/// holders as have allocated or acquired it; with the last one it is free again, and the next to be
/// given away: the last that was freed comes first, and of those that never were, the lowest id.
///
/// Memory is allocated when a tensor of a block is first asked for. A free block keeps it, and is
/// warm, until `trim` takes it back.
///
/// An exhausted pool is an answer, misuse an error; after an error nothing has changed. All members
/// may be called from several threads. Contents are the holders' business: only the sole holder of
/// a block writes it.
class BlockManager {
public:
  /// Fails for sizes that are not positive, parts whose token axis has another extent than
  /// `blockTokens`, and parts whose bytes overflow.
  static llvm::Expected<std::shared_ptr<BlockManager>> create(BlockManagerOptions options);
  BlockManager(const BlockManager&) = delete;
  BlockManager& operator=(const BlockManager&) = delete;

  int64_t blockTokens() const { return options.blockTokens; }
  int64_t maxBlocks() const { return options.maxBlocks; }
  size_t partCount() const { return options.parts.size(); }
  const BlockPart& part(size_t index) const { return options.parts[index]; }
  const std::shared_ptr<Allocator>& allocator() const { return options.allocator; }

  /// A block with one holder and no tokens; nullopt where all are taken.
  std::optional<BlockId> allocate();
  /// One more holder.
  llvm::Error acquire(BlockId block);
  /// One holder less.
  llvm::Error release(BlockId block);
  /// How many of its rows hold tokens.
  llvm::Error setTokens(BlockId block, int64_t tokens);

  BlockState state(BlockId block) const;
  llvm::Expected<int64_t> tokens(BlockId block) const;
  /// 0 for a free block.
  int64_t holders(BlockId block) const;
  /// Whether the block may be written by its holder: there is no other, and its memory is its own.
  bool isWritable(BlockId block) const;
  int64_t freeBlocks() const;
  int64_t takenBlocks() const { return maxBlocks() - freeBlocks(); }
  /// Bytes of all blocks that have memory, free ones included.
  int64_t memoryBytes() const;

  /// The tensor of part `index` of a block that is taken; its first use allocates it.
  llvm::Expected<TensorView> memory(BlockId block, size_t index);
  /// Memory that somebody else made becomes part `index` of a block; it must be of the part's
  /// element type and extents, but for fewer rows, which are then all that the block may hold. It
  /// is never written.
  llvm::Error adopt(BlockId block, size_t index, Tensor tensor);
  /// A new block with the first `tokens` tokens of another; nullopt where all blocks are taken.
  llvm::Expected<std::optional<BlockId>> copy(BlockId block, int64_t tokens);

  /// Takes back the memory of free blocks, but of `warmBlocks` that will be given away next.
  void trim(int64_t warmBlocks = 0);

private:
  struct Block {
    int64_t holders = 0;
    int64_t tokens = 0;
    std::vector<Tensor> parts; ///< without data: not allocated yet
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
  std::vector<Block> blocks;      ///< those that were ever given away
  std::vector<BlockId> freeStack; ///< of those
};

} // namespace kvopt::runtime
