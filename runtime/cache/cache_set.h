// CacheSet: caches of one session, and their valid parts.
#pragma once

#include "runtime/cache/block_table.h"
#include "runtime/cache/cache_file.h"
#include "runtime/cache/cache_geometry.h"
#include "runtime/cache/row_moves.h"
#include "runtime/memory/buffer.h"

namespace kvopt::runtime {

struct CacheSetOptions {
  int64_t batch = 1;
  /// Capacity of shared buffers in tokens.
  int64_t room = 0;
  /// Growth makes the room a multiple of this number, which `room` must be, too.
  int64_t roomUnit = 1;
  /// Number of rows of static caches for which the manifest does not specify it.
  int64_t openRows = 0;
  /// For caches in blocks: tokens per block, tokens that one set may hold, and blocks that the set
  /// and its copies may hold together.
  int64_t blockTokens = 0;
  int64_t blockRoom = INT64_MAX;
  int64_t blockLimit = int64_t{1} << 40;
  /// Blocks are read including rows without tokens (`wholeBlock`).
  bool readsWholeBlocks = false;
  /// Fill unused rows of shared buffers, and new blocks, with NaN instead of zeros; with large
  /// numbers if whole blocks are read.
  bool poison = false;
  std::shared_ptr<Allocator> allocator;
};

/// Change of the rows of one cache that move to earlier positions.
struct CacheTurn {
  /// Null if rows do not depend on their position.
  const ir::ManifestRotation* rotation = nullptr;
  unsigned columnAxis = 0;
  /// Cache of the scales by which its codes are multiplied.
  std::optional<size_t> scales;
  /// Number of values in a four-bit row; 0 for other rows.
  int64_t codeColumns = 0;
};

/// Tensors of one batch, and the number of tokens of each batch row. An operation that fails leaves
/// the set unchanged. The set owns its memory, with two exceptions: the memory of frozen sets is
/// never written and is shared by copies, and shared blocks are copied when one of their holders
/// writes.
class CacheSet {
public:
  CacheSet() = default;
  CacheSet(CacheSet&&) = default;
  CacheSet& operator=(CacheSet&&) = default;

  /// Requires that shared caches grow. Nothing is valid at first. Shared buffers have `room` rows,
  /// other caches the number in their manifest; all are zero. Pages of large buffers are not
  /// touched before their rows are written.
  static llvm::Expected<CacheSet> create(llvm::ArrayRef<ir::ManifestCache> caches,
                                         CacheSetOptions options);

  size_t size() const { return tensors.size(); }
  int64_t batch() const { return options.batch; }
  /// Number of valid tokens of every batch row, and of the longest one.
  llvm::ArrayRef<int64_t> lengths() const { return tokens; }
  int64_t length() const { return longest; }
  bool isRagged() const;
  /// Capacity of shared buffers in tokens; INT64_MAX without shared buffers.
  int64_t room() const {
    return std::min(hasShared ? options.room : INT64_MAX, table ? options.blockRoom : INT64_MAX);
  }
  /// Number of rows of the smallest static cache; INT64_MAX without static caches.
  int64_t staticRoom() const { return staticRows; }
  /// The first cache whose batch rows must have equal lengths; null if there is none.
  const CacheGeometry* evenOnly() const;
  bool isFrozen() const { return frozen; }

  const CacheGeometry& geometry(size_t index) const { return geometries[index]; }
  const TensorView& buffer(size_t index) const { return tensors[index].view; }
  /// For a cache with a row per token, its valid rows, up to the length of the longest batch row;
  /// for others, all rows. Requires that the cache is not in blocks, because their rows are not
  /// contiguous.
  TensorView view(size_t index) const;
  /// The same rows of any cache: the view, or a copy if rows are in blocks.
  llvm::Expected<Tensor> rows(size_t index) const;
  /// A copy of these rows.
  llvm::Expected<Tensor> copyOfRows(size_t index) const;
  /// Size of all caches in bytes, whether their pages are resident or not. Includes all blocks of a
  /// shared pool.
  int64_t bytes() const;

  /// Replaces a cache that is not shared with the model's output.
  void replace(size_t index, Tensor present) { tensors[index] = std::move(present); }
  /// Extends every batch row by `count` tokens. Rows in blocks must have been written.
  void advance(int64_t count);

  /// Prepares blocks, and pages of shared buffers, for `count` more tokens. An exhausted pool is an
  /// error. Must be followed by `advance`, or by `cancel` if the tokens are not added.
  llvm::Error reserve(int64_t count);
  void cancel();
  /// Rows of a cache in its block at `position`; empty if the block does not exist yet.
  llvm::Expected<TensorView> blockRows(size_t index, size_t position) const;
  /// All rows of the block; the room may limit their number in the last block. Rows after the
  /// tokens are finite. Zeros if the block does not exist yet.
  llvm::Expected<TensorView> wholeBlock(size_t index, size_t position) const;
  /// Writes the new rows `rows` to the reserved blocks, and returns the number of bytes. Blocks
  /// that they fill completely take over the memory of `rows`, which must not change afterwards.
  llvm::Expected<int64_t> writeRows(size_t index, const Tensor& rows);
  /// Blocks of the set; null if no cache is in blocks.
  const BlockTable* blocks() const { return table ? &*table : nullptr; }

  /// Grows the shared buffers to `room` rows or slightly more, and returns the number of copied
  /// bytes. Large rows are not copied: their pages are remapped.
  llvm::Expected<int64_t> grow(int64_t room);
  /// Keeps the first tokens of every batch row, which must have at least that many. Fails if a
  /// cache cannot be cropped.
  llvm::Error crop(llvm::ArrayRef<int64_t> kept);
  llvm::Error reset();
  /// Reason that `shift` is not possible; empty if it is.
  std::string shiftObstacle() const;
  /// Drops the rows [kept, kept + dropped) of every batch row, which must contain them, and moves
  /// the later rows forward, rotated by the same number of positions. There is one turn for each
  /// cache, whose rotation fits its columns. Requires that there is no obstacle.
  llvm::Error shift(int64_t kept, int64_t dropped, llvm::ArrayRef<CacheTurn> turns);
  /// Makes batch row i a copy of row `sources[i]`. There is one valid source for each row.
  llvm::Error reorder(llvm::ArrayRef<int64_t> sources);
  /// An independent, running set with one batch row for each source; `caches` are those of
  /// `create`.
  llvm::Expected<CacheSet> gathered(llvm::ArrayRef<ir::ManifestCache> caches,
                                    llvm::ArrayRef<int64_t> sources) const;
  /// An independent set; a copy of a frozen set shares its memory.
  llvm::Expected<CacheSet> clone() const;

  /// Releases memory that is not valid. The set must not change until `thaw` makes it run again
  /// with shared buffers of `room` rows.
  llvm::Error freeze();
  llvm::Error thaw(int64_t room);

  /// Contents of a file of this set: the valid rows.
  llvm::Expected<std::vector<StoredCache>> stored() const;
  /// Adopts the contents of a file, which must fit: other caches, extents or batch sizes are an
  /// error. Shared buffers with fewer than `room` rows are replaced.
  llvm::Error restore(const CacheFileContents& contents, int64_t room);

private:
  llvm::Error makePool();
  bool inBlocks(size_t index) const { return geometries[index].isInBlocks(); }
  llvm::Expected<BlockTable> copyBlocks(const CacheSet& target,
                                        llvm::ArrayRef<int64_t> sources) const;
  llvm::Expected<BlockTable> restoredBlocks(const CacheFileContents& contents) const;
  llvm::Expected<Tensor> joinedRows(size_t index) const;
  /// The same caches without contents.
  CacheSet withoutTensors() const;
  int64_t startRows(size_t index) const;
  /// Uninitialized memory; zeros if the cache is shared.
  llvm::Expected<Tensor> unwritten(size_t index, int64_t rows) const;
  /// Zeros, or NaN with the poison option.
  llvm::Expected<Tensor> empty(size_t index, int64_t rows) const;
  /// Fills the rows that are not valid with NaN, with the poison option.
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
  std::vector<Tensor> tensors; ///< without rows for caches in blocks
  std::optional<BlockTable> table;
  std::vector<size_t> partOf;              ///< index of the cache's part in a block
  mutable std::vector<Tensor> emptyBlocks; ///< zeros that `wholeBlock` returned
  llvm::SmallVector<int64_t, 4> tokens;
  int64_t longest = 0;
  int64_t staticRows = INT64_MAX;
  bool hasShared = false;
  bool frozen = false;
  bool usesLargePages = false; ///< if shared buffers are large enough
};

} // namespace kvopt::runtime
