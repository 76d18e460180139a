// Objects as manifests spell them, where Manifest has another structure.
#pragma once

#include "ir/manifest/manifest.h"

namespace kvopt::ir {

/// Manifest::capacitySymbol and Manifest::capacityValue.
struct CapacityEntry {
  std::string symbol;
  std::optional<int64_t> value;
};

/// A cache with its storage as keys.
struct CacheEntry : ManifestCache {
  bool isOnlyRead = false;
  CacheUpdate policy = CacheUpdate::Grows;
  bool oneBuffer = false;
  bool newRowsOnly = false;
  bool inPool = false;
  std::vector<std::string> blockInputs;
};

} // namespace kvopt::ir
