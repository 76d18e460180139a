// From caches to their parts and back, in manifests.
#include "passes/analysis/cache/cache_parts.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// The axis of the whole that is axis `axis` of the part.
int64_t axisInWhole(const ManifestPart& part, int64_t axis) {
  for (const int64_t dropped : part.dropped)
    axis += dropped <= axis ? 1 : 0;
  return axis;
}

} // namespace

void noteParts(const CacheParts& parts, Manifest& manifest) {
  for (ManifestCache& cache : manifest.caches)
    if (auto found = parts.find(cache.past); found != parts.end())
      cache.part = found->second.part;
}

void joinParts(const CacheParts& parts, Manifest& manifest) {
  if (parts.empty())
    return;
  std::vector<ManifestCache> joined;
  llvm::StringSet<> known;
  for (ManifestCache& cache : manifest.caches) {
    auto found = parts.find(cache.past);
    if (found == parts.end() || found->second.whole.empty()) {
      joined.push_back(std::move(cache));
      continue;
    }
    const auto& [part, whole] = found->second;
    if (!known.insert(part.past).second)
      continue;
    cache.past = part.past;
    cache.present = part.present;
    cache.shape = whole;
    cache.sequenceAxis = axisInWhole(part, cache.sequenceAxis);
    cache.readers.clear();
    cache.part.reset();
    joined.push_back(std::move(cache));
  }
  manifest.caches = std::move(joined);
}

} // namespace kvopt::analysis
