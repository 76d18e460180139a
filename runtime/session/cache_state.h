// CacheState: caches of a session, and changes of their rows between steps.
#pragma once

#include "ir/model.h"
#include "runtime/cache/cache_set.h"
#include "runtime/cache/model_fingerprint.h"
#include "runtime/exec/executor.h"
#include "runtime/session/cache_room.h"

#include <algorithm>
#include <string>

namespace kvopt {
class FileAccess;
} // namespace kvopt

namespace kvopt::runtime {

/// Source of rows that caches are seeded with.
enum class SeedOrigin {
  AnyModel, ///< the exported model, or a rewrite of it
  ThisModel ///< exactly this model
};

/// A CacheSet with the manifest's description of its caches. Session documents the operations.
/// After an error, the caches are unchanged.
class CacheState {
public:
  /// The model and the manifest must outlive this object. The options have an allocator.
  CacheState(const ir::Model& cachedModel, const ir::Manifest& described,
             const SessionOptions& settings)
      : model(cachedModel), manifest(described), options(settings), room(described, settings) {}

  /// Creates empty caches. `readsWholeBlocks` if steps read rows of blocks without tokens.
  llvm::Error start(bool readsWholeBlocks);
  /// Copies caches of the same model; shares the memory of frozen ones.
  llvm::Error copyFrom(const CacheState& other);

  CacheSet& set() { return caches; }
  const CacheSet& set() const { return caches; }
  size_t size() const { return caches.size(); }
  int64_t batch() const { return caches.batch(); }
  int64_t length() const { return caches.length(); }
  llvm::ArrayRef<int64_t> rowLengths() const { return caches.lengths(); }
  int64_t intactTokens() const { return intact; }
  const std::shared_ptr<Allocator>& allocator() const { return options.allocator; }

  /// The manifest's description of a cache.
  const ir::ManifestCache& info(size_t index) const { return manifest.caches[index]; }
  /// Index of the cache with the scales of the codes in cache `index`; nullopt if its rows are not
  /// codes.
  std::optional<size_t> scalesOf(size_t index) const;
  /// Valid rows: a view of the caches' memory, or a copy if rows are in blocks.
  llvm::Expected<Tensor> rows(size_t index) const { return caches.rows(index); }
  llvm::Expected<Tensor> exportedRows(size_t index) const;
  unsigned exportedSequenceAxis(size_t index) const;
  std::optional<unsigned> exportedBatchAxis(size_t index) const;
  /// Whole memory of a cache that is a pool, with the model's shape [blocks, block size, heads,
  /// width].
  TensorView poolView(size_t index) const;

  int64_t capacity() const { return std::min({caches.room(), caches.staticRoom(), room.limit()}); }
  /// Capacity that shared buffers need for `tokens` tokens; a CapacityError if they cannot provide
  /// it.
  llvm::Expected<int64_t> roomFor(int64_t tokens) const { return room.forTokens(tokens, caches); }
  llvm::Error checkRoom(int64_t newTokens) const;
  bool hasLengthPerRow() const { return lengthObstacle.empty(); }
  /// A usage error if the caches are frozen.
  llvm::Error checkRunning() const;

  llvm::Error crop(int64_t tokens);
  llvm::Error cropRows(llvm::ArrayRef<int64_t> tokens);
  llvm::Error checkShift() const;
  llvm::Error shift(int64_t keptFirst, int64_t dropped);
  llvm::Error reset();
  llvm::Error preset(int64_t tokens);
  llvm::Error seed(llvm::ArrayRef<NamedView> seeds, int64_t tokens, SeedOrigin origin);
  llvm::Error reorder(llvm::ArrayRef<int64_t> rows);
  llvm::Error freeze() { return isFrozen() ? llvm::Error::success() : caches.freeze(); }
  llvm::Error thaw();
  bool isFrozen() const { return caches.isFrozen(); }

  llvm::Error save(const std::string& path, FileAccess& access) const;
  llvm::Error load(const std::string& path);
  const ModelFingerprint& fingerprint() const;

private:
  /// Replaces all contents of the caches, in buffers with room for the tokens.
  llvm::Error restore(const CacheFileContents& contents);
  llvm::Error adopt(const CacheFileContents& contents);
  /// Assigns the view to the cache of that name, or to each part of it.
  llvm::Error findSeeded(const NamedView& view, SeedOrigin origin,
                         std::vector<std::optional<TensorView>>& sources) const;

  const ir::Model& model;
  const ir::Manifest& manifest;
  const SessionOptions& options;
  CacheRoom room;
  CacheSet caches;
  std::string
      lengthObstacle; ///< reason that batch rows must have equal lengths; empty if they need not
  int64_t intact = INT64_MAX;
  mutable std::optional<ModelFingerprint> knownFingerprint;
};

} // namespace kvopt::runtime
