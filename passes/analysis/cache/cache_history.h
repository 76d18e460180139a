// CacheHistory: the form of a model's caches in the exported model.
#pragma once

#include "ir/manifest/manifest.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringSet.h"

#include <map>

namespace kvopt::analysis {

struct CachePart {
  ir::ManifestPart part;
  /// Extents of the cache that contains the part; empty if the model that was read already has
  /// parts.
  std::vector<ir::ManifestExtent> whole;
};

/// Parts by the name of the part's past.
using CacheParts = std::map<std::string, CachePart>;

/// Passes that change caches record their former form here. It is written to manifests, and read
/// from the manifest of a model that was rewritten before. Caches are named by their inputs.
class CacheHistory {
public:
  /// Caches that are parts of the exported model's caches, due to `split-caches`.
  CacheParts parts;

  /// Adds the history in the manifest of a model that was rewritten before.
  void read(const ir::Manifest& stored);

  /// The exported model returns only the new rows as this output, which is now the whole cache.
  void addNewRows(llvm::StringRef present) { newRows.insert(present); }
  /// The cache holds rows as attention reads them; the exported model caches the rows from which
  /// they are computed.
  void addAttendedRows(llvm::StringRef past) { attended.insert(past); }
  /// The cache's rows are rounded; `exported` is their former element type.
  void addRounding(llvm::StringRef past, ir::ElementType exported);
  /// The cache replaces `originals`, or the caches that those replaced.
  void addReplacement(llvm::StringRef past, llvm::ArrayRef<ir::ManifestCache> originals);

  bool hasNewRows(llvm::StringRef present) const { return newRows.contains(present); }
  const llvm::StringSet<>& attendedPasts() const { return attended; }
  /// Whether a pass changed the cache.
  bool changes(const ir::ManifestCache& cache) const;
  bool hasReplacements() const { return !replaced.empty(); }

  /// Writes the former form of the caches to the manifest of the rewritten model.
  void writeTo(ir::Manifest& manifest) const;
  /// Turns the manifest of a model with changed caches into that of the exported model: a whole
  /// cache replaces its first part, and replaced caches return.
  void undo(ir::Manifest& manifest) const;

private:
  void restoreReplaced(ir::Manifest& manifest) const;
  void joinParts(ir::Manifest& manifest) const;

  llvm::StringSet<> newRows;  ///< by present
  llvm::StringSet<> attended; ///< by past, as are the following
  std::map<std::string, ir::ElementType> rounded;
  std::map<std::string, std::vector<ir::ManifestCache>> replaced;
};

} // namespace kvopt::analysis
