// CacheHistory: what the caches of a model were in the model as it was exported.
#pragma once

#include "ir/manifest/manifest.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringSet.h"

#include <map>

namespace kvopt::analysis {

struct CachePart {
  ir::ManifestPart part;
  /// The extents of the cache that it is a part of; empty where the model that was read has parts
  /// already.
  std::vector<ir::ManifestExtent> whole;
};

/// By the name of the part's past.
using CacheParts = std::map<std::string, CachePart>;

/// Passes that change caches say here what they were; it goes from there into manifests, and comes
/// from the manifest of a model that was rewritten before. Caches are named by their inputs.
class CacheHistory {
public:
  /// Caches that are parts of the exported model's: by `split-caches`.
  CacheParts parts;

  /// Adds what the manifest of a model that was rewritten before tells.
  void read(const ir::Manifest& stored);

  /// The exported model gives the new rows only as this output, which is the whole cache now.
  void addNewRows(llvm::StringRef present) { newRows.insert(present); }
  /// The cache holds rows as attention reads them, where the exported model has rows that those are
  /// computed of.
  void addAttendedRows(llvm::StringRef past) { attended.insert(past); }
  /// The cache's rows are rounded, from this element type.
  void addRounding(llvm::StringRef past, ir::ElementType exported);
  /// The cache is kept instead of `originals`, or of what those are kept instead of.
  void addReplacement(llvm::StringRef past, llvm::ArrayRef<ir::ManifestCache> originals);

  bool hasNewRows(llvm::StringRef present) const { return newRows.contains(present); }
  const llvm::StringSet<>& attendedPasts() const { return attended; }
  bool hasReplacements() const { return !replaced.empty(); }

  /// Says in the manifest of the rewritten model what its caches were.
  void writeTo(ir::Manifest& manifest) const;
  /// Makes the manifest of the model in which caches were changed that of the exported model: one
  /// cache in the place of the first of its parts, the caches that others are kept instead of.
  void undo(ir::Manifest& manifest) const;

private:
  void restoreReplaced(ir::Manifest& manifest) const;
  void joinParts(ir::Manifest& manifest) const;

  llvm::StringSet<> newRows;  ///< by presents
  llvm::StringSet<> attended; ///< by pasts, as the others
  std::map<std::string, ir::ElementType> rounded;
  std::map<std::string, std::vector<ir::ManifestCache>> replaced;
};

} // namespace kvopt::analysis
