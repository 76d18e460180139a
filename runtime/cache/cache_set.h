// CacheSet: the caches of one session and what is valid in them.
#pragma once

#include "runtime/cache/block_table.h"
#include "runtime/cache/cache_file.h"
#include "runtime/cache/cache_geometry.h"
#include "runtime/cache/row_moves.h"
#include "runtime/memory/buffer.h"

namespace kvopt::runtime {

struct CacheSetOptions {
  int64_t batch = 1;
  /// Tokens that shared buffers have room for.
  int64_t room = 0;
  /// What growth makes the room a multiple of, as `room` is.
  int64_t roomUnit = 1;
  /// Rows of static caches whose number the manifest leaves open.
  int64_t openRows = 0;
  /// Of caches in blocks: tokens of a block, tokens that one set may hold, and blocks that the set
  /// and its copies may hold together.
  int64_t blockTokens = 0;
  int64_t blockRoom = INT64_MAX;
  int64_t blockLimit = int64_t{1} << 40;
  /// Blocks are read with the rows that hold no token (`wholeBlock`).
  bool readsWholeBlocks = false;
  /// Fill unused rows of shared buffers, and fresh blocks, with NaN instead of zeros; blocks that
  /// are read whole with large numbers.
  bool poison = false;
  std::shared_ptr<Allocator> allocator;
};

/// What happens to the rows of one cache that come to earlier positions.
struct CacheTurn {
  /// Null where a position does nothing to rows.
  const ir::ManifestRotation* rotation = nullptr;
  unsigned columnAxis = 0;
  /// The cache of the scales that its codes are multiplied by.
  std::optional<size_t> scales;
  /// Of rows of four-bit codes: how many there are in a row; 0 for others.
  int64_t codeColumns = 0;
};

/// Tensors of one batch, and how many tokens each batch row holds. Every operation that can fail
/// leaves the set as it was when it does. Memory is the set's own, but for that of frozen sets,
/// which is never written and which copies share, and but for blocks, which are copied when one of
/// those who share them writes.
class CacheSet {
public:
  CacheSet() = default;
  CacheSet(CacheSet&&) = default;
  CacheSet& operator=(CacheSet&&) = default;

  /// Requires that shared caches grow. Nothing is valid; shared buffers have
  /// `room` rows, other caches what their manifest says, in zeros. Of large ones no page is touched
  /// before its rows are written.
  static llvm::Expected<CacheSet> create(llvm::ArrayRef<ir::ManifestCache> caches,
                                         CacheSetOptions options);

  size_t size() const { return tensors.size(); }
  int64_t batch() const { return options.batch; }
  /// Valid tokens of every batch row, and of the longest one.
  llvm::ArrayRef<int64_t> lengths() const { return tokens; }
  int64_t length() const { return longest; }
  bool isRagged() const;
  /// Tokens that shared buffers have room for; INT64_MAX without any.
  int64_t room() const {
    return std::min(hasShared ? options.room : INT64_MAX, table ? options.blockRoom : INT64_MAX);
  }
  /// Rows of the smallest static cache; INT64_MAX without any.
  int64_t staticRoom() const { return staticRows; }
  /// The first cache whose batch rows cannot be of different lengths; null if there is none.
  const CacheGeometry* evenOnly() const;
  bool isFrozen() const { return frozen; }

  const CacheGeometry& geometry(size_t index) const { return geometries[index]; }
  const TensorView& buffer(size_t index) const { return tensors[index].view; }
  /// The valid rows of a cache with a row per token, as many as the longest batch row has; all of
  /// any other. Requires a cache that is not in blocks, whose rows have no one place.
  TensorView view(size_t index) const;
  /// The same rows of any cache: the view, or a copy of rows that are in blocks.
  llvm::Expected<Tensor> rows(size_t index) const;
  /// A copy of them.
  llvm::Expected<Tensor> copyOfRows(size_t index) const;
  /// Bytes that the caches have room for, whether pages stand behind them or not; of blocks, with
  /// those of all who share the pool.
  int64_t bytes() const;

  /// Takes what the model made of a cache that is not shared.
  void replace(size_t index, Tensor present) { tensors[index] = std::move(present); }
  /// Every batch row is `count` tokens longer. The rows in blocks have been written.
  void advance(int64_t count);

  /// Makes blocks, and pages of shared buffers, ready for `count` more tokens; an exhausted pool is
  /// an error. To be followed by `advance`, or by `cancel` where the tokens do not come.
  llvm::Error reserve(int64_t count);
  void cancel();
  /// The rows of a cache in its block at `position`; none where there is no such block yet.
  llvm::Expected<TensorView> blockRows(size_t index, size_t position) const;
  /// The block with all its rows, whose number the room may limit for the last one: those behind
  /// the tokens are finite. Zeros where there is no such block yet.
  llvm::Expected<TensorView> wholeBlock(size_t index, size_t position) const;
  /// Writes new rows, all that `rows` has, into the blocks that were made ready; the number of
  /// bytes. A block that they fill from its first row on takes their memory over, which must be
  /// left alone from then on.
  llvm::Expected<int64_t> writeRows(size_t index, const Tensor& rows);
  /// The blocks of the set; null where no cache is in blocks.
  const BlockTable* blocks() const { return table ? &*table : nullptr; }

  /// Makes the shared buffers longer, to `room` rows or a few more; the number of bytes copied.
  /// Rows of which there is much are not copied: their pages move.
  llvm::Expected<int64_t> grow(int64_t room);
  /// Keeps the first tokens of every batch row, which has at least as many. Refuses where a cache
  /// cannot go back.
  llvm::Error crop(llvm::ArrayRef<int64_t> kept);
  llvm::Error reset();
  /// Why `shift` is refused; empty where it is not.
  std::string shiftObstacle() const;
  /// Drops the rows [kept, kept + dropped) of every batch row, which has at least as many, and
  /// moves the later ones forward, rotated by as many positions. One turn for each cache, whose
  /// rotations fit its columns. Requires that there is no obstacle.
  llvm::Error shift(int64_t kept, int64_t dropped, llvm::ArrayRef<CacheTurn> turns);
  /// Batch row i becomes what row `sources[i]` was. As many sources as rows, and all of them rows.
  llvm::Error reorder(llvm::ArrayRef<int64_t> sources);
  /// A running set of its own with as many batch rows as there are sources; `caches` are those of
  /// `create`.
  llvm::Expected<CacheSet> gathered(llvm::ArrayRef<ir::ManifestCache> caches,
                                    llvm::ArrayRef<int64_t> sources) const;
  /// A set of its own; of a frozen set one that shares its memory.
  llvm::Expected<CacheSet> clone() const;

  /// Gives back what is not valid. The set must not be changed any more, until `thaw` makes it run
  /// again with shared buffers of `room` rows.
  llvm::Error freeze();
  llvm::Error thaw(int64_t room);

  /// What a file of this set holds: valid rows.
  llvm::Expected<std::vector<StoredCache>> stored() const;
  /// Takes over what a file holds, which must fit: other caches, extents or batch sizes are an
  /// error. Shared buffers with less than `room` rows are replaced.
  llvm::Error restore(const CacheFileContents& contents, int64_t room);

private:
  llvm::Error makePool();
  bool inBlocks(size_t index) const { return geometries[index].isInBlocks(); }
  llvm::Expected<BlockTable> copyBlocks(const CacheSet& target,
                                        llvm::ArrayRef<int64_t> sources) const;
  llvm::Expected<BlockTable> restoredBlocks(const CacheFileContents& contents) const;
  llvm::Expected<Tensor> joinedRows(size_t index) const;
  /// The same caches without their contents.
  CacheSet withoutTensors() const;
  int64_t startRows(size_t index) const;
  /// Uninitialized, but zeros if the cache is shared.
  llvm::Expected<Tensor> unwritten(size_t index, int64_t rows) const;
  /// Zeros; NaN, where that is asked for.
  llvm::Expected<Tensor> empty(size_t index, int64_t rows) const;
  /// Makes NaN of the rows that are not valid, where that is asked for.
  void poisonUnused(size_t index, const TensorView& tensor) const;
  llvm::Expected<Tensor> shiftTarget(size_t index, int64_t kept, int64_t dropped) const;
  llvm::SmallVector<int64_t, 4> everyRow() const;
  llvm::Expected<CacheSet> copyTo(CacheSet target, llvm::ArrayRef<int64_t> sources) const;
  int64_t copyRows(size_t index, llvm::ArrayRef<int64_t> sources, const CacheGeometry& geometryTo,
                   const TensorView& to) const;
  void moveRows(size_t index, llvm::ArrayRef<RowMove> moves, std::byte* aside) const;
  int64_t roomInPages(int64_t room) const;
  void prepareRows(int64_t count);
  int64_t growInto(size_t index, Tensor& larger, int64_t& movableRuns);
  llvm::Error checkBatchRows() const;
  llvm::Error cropRing(size_t index, int64_t kept);
  void setLengths(llvm::ArrayRef<int64_t> values);
  llvm::Error checkFits(const CacheFileContents& contents) const;
  llvm::Error checkEntry(const CacheFileEntry& entry, const CacheGeometry& cache,
                         llvm::ArrayRef<int64_t> lengths) const;

  CacheSetOptions options;
  std::vector<CacheGeometry> geometries;
  std::vector<Tensor> tensors; ///< of caches in blocks: without rows
  std::optional<BlockTable> table;
  std::vector<size_t> partOf;              ///< which part of a block a cache is
  mutable std::vector<Tensor> emptyBlocks; ///< zeros, where `wholeBlock` needed some
  llvm::SmallVector<int64_t, 4> tokens;
  int64_t longest = 0;
  int64_t staticRows = INT64_MAX;
  bool hasShared = false;
  bool frozen = false;
  bool usesLargePages = false; ///< as far as shared buffers are large enough
};

} // namespace kvopt::runtime
