// Conversion between current and former forms of caches in manifests.
#include "passes/analysis/cache/cache_history.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// The axis of the whole that corresponds to axis `axis` of the part.
int64_t axisInWhole(const ManifestPart& part, int64_t axis) {
  for (const int64_t dropped : part.dropped)
    axis += dropped <= axis ? 1 : 0;
  return axis;
}

} // namespace

void CacheHistory::read(const Manifest& stored) {
  for (const ManifestCache& cache : stored.caches) {
    if (cache.part)
      parts[cache.past] = {*cache.part, {}};
    if (cache.holdsAttendedRows)
      attended.insert(cache.past);
    if (cache.exportedDtype != ElementType::Undefined)
      rounded[cache.past] = cache.exportedDtype;
    // The manifest holds only the names of these.
    for (const ManifestReplacement& each : cache.replaces) {
      ManifestCache& original = replaced[cache.past].emplace_back();
      original.past = each.past;
      original.present = each.present;
    }
  }
}

void CacheHistory::addRounding(llvm::StringRef past, ElementType exported) {
  rounded.insert({past.str(), exported});
}

void CacheHistory::addReplacement(llvm::StringRef past, llvm::ArrayRef<ManifestCache> originals) {
  std::vector<ManifestCache> exported;
  for (const ManifestCache& original : originals) {
    const auto earlier = replaced.find(original.past);
    const llvm::ArrayRef<ManifestCache> all = earlier == replaced.end()
                                                  ? llvm::ArrayRef<ManifestCache>(original)
                                                  : llvm::ArrayRef<ManifestCache>(earlier->second);
    for (const ManifestCache& each : all)
      if (llvm::none_of(exported,
                        [&](const ManifestCache& other) { return other.past == each.past; }))
        exported.push_back(each);
  }
  replaced[past.str()] = std::move(exported);
}

bool CacheHistory::changes(const ManifestCache& cache) const {
  return newRows.contains(cache.present) || attended.contains(cache.past) ||
         parts.count(cache.past) != 0 || rounded.count(cache.past) != 0 ||
         replaced.count(cache.past) != 0;
}

void CacheHistory::writeTo(Manifest& manifest) const {
  for (ManifestCache& cache : manifest.caches) {
    if (const auto found = parts.find(cache.past); found != parts.end())
      cache.part = found->second.part;
    cache.holdsAttendedRows = attended.contains(cache.past);
    if (const auto found = rounded.find(cache.past); found != rounded.end())
      cache.exportedDtype = found->second;
    const auto originals = replaced.find(cache.past);
    if (originals == replaced.end())
      continue;
    for (const ManifestCache& original : originals->second) {
      const auto part = parts.find(original.past);
      const ManifestReplacement whole =
          part == parts.end()
              ? ManifestReplacement{original.past, original.present}
              : ManifestReplacement{part->second.part.past, part->second.part.present};
      if (!llvm::is_contained(cache.replaces, whole))
        cache.replaces.push_back(whole);
    }
  }
}

void CacheHistory::undo(Manifest& manifest) const {
  // By the names of parts, which the names of whole caches replace below.
  for (ManifestCache& cache : manifest.caches)
    if (const auto found = rounded.find(cache.past); found != rounded.end())
      cache.dtype = found->second;
  restoreReplaced(manifest);
  joinParts(manifest);
  for (ManifestCache& cache : manifest.caches)
    if (auto* growing = std::get_if<GrowingCache>(&cache.storage))
      growing->givesNewRows = newRows.contains(cache.present);
}

void CacheHistory::restoreReplaced(Manifest& manifest) const {
  std::vector<ManifestCache> caches;
  llvm::StringSet<> known;
  for (ManifestCache& cache : manifest.caches) {
    const auto found = replaced.find(cache.past);
    // The manifest holds only the names.
    if (found == replaced.end() || found->second.front().shape.empty()) {
      caches.push_back(std::move(cache));
      continue;
    }
    for (const ManifestCache& original : found->second)
      if (known.insert(original.past).second) {
        caches.push_back(original);
        caches.back().layer = cache.layer;
      }
  }
  manifest.caches = std::move(caches);
}

void CacheHistory::joinParts(Manifest& manifest) const {
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
