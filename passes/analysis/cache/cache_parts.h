// Caches that are parts of the caches of the model that was read.
#pragma once

#include "ir/manifest/manifest.h"

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

/// Says of the manifest's caches what they are parts of.
void noteParts(const CacheParts& parts, ir::Manifest& manifest);

/// The manifest of the model that was read, from that of the model in which caches were split: one
/// cache in the place of the first of its parts.
void joinParts(const CacheParts& parts, ir::Manifest& manifest);

} // namespace kvopt::analysis
