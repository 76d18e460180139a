// Caches of layers that keep their spelling, described by the recovery of all layers.
#include "passes/targets/partial_manifest.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;

namespace {

const ManifestCache* findCache(const Manifest& manifest, llvm::StringRef past) {
  const auto found = llvm::find_if(manifest.caches,
                                   [&](const ManifestCache& cache) { return cache.past == past; });
  return found == manifest.caches.end() ? nullptr : &*found;
}

/// Whether both describe the same input and output.
bool areSame(const ManifestCache& a, const ManifestCache& b) {
  return a.past == b.past && a.present == b.present && a.dtype == b.dtype && a.shape == b.shape &&
         a.sequenceAxis == b.sequenceAxis;
}

/// Whether the graph still has the input and the output of an exported cache.
bool isIn(const Graph& graph, const ManifestCache& cache) {
  const Value* past = graph.findValue(cache.past);
  const Value* present = cache.present.empty() ? nullptr : graph.findValue(cache.present);
  return past && past->isGraphInput() &&
         (cache.present.empty() || (present && present->isGraphOutput()));
}

/// The entry of a cache that is not rewritten.
ManifestCache keptCache(const WholeRecovery& whole, const CacheHistory& history,
                        ManifestCache found) {
  const ManifestCache* exported = findCache(whole.exported, found.past);
  if (exported && !history.changes(found))
    return *exported;
  const ManifestCache* lowered = findCache(whole.lowered, found.past);
  return lowered && areSame(*lowered, found) ? *lowered : found;
}

/// Gives each cache its rotation in the whole model; no rotations if a rotated cache is missing.
void completeRotations(const WholeRecovery& whole, const llvm::StringSet<>& rewritten,
                       Manifest& manifest) {
  manifest.rotations = whole.lowered.rotations;
  for (ManifestCache& cache : manifest.caches)
    cache.rotation.reset();
  if (!manifest.rotations)
    return;
  for (const ManifestCache& known : whole.lowered.caches) {
    if (!known.rotation)
      continue;
    const auto cache = llvm::find_if(
        manifest.caches, [&](const ManifestCache& other) { return other.past == known.past; });
    if (cache == manifest.caches.end()) {
      manifest.rotations.reset();
      break;
    }
    // A cache that keeps the exporter's form may hold rows before their rotation.
    if (rewritten.contains(known.past) || !whole.attendedPasts.contains(known.past))
      cache->rotation = known.rotation;
  }
  if (!manifest.rotations)
    for (ManifestCache& cache : manifest.caches)
      cache.rotation.reset();
}

} // namespace

void completeManifest(const WholeRecovery& whole, const CacheHistory& history, const Graph& graph,
                      const llvm::StringSet<>& rewritten, Manifest& manifest) {
  for (ManifestCache& cache : manifest.caches) {
    if (!rewritten.contains(cache.past)) {
      cache = keptCache(whole, history, std::move(cache));
    } else if (const ManifestCache* known = findCache(whole.lowered, cache.past)) {
      // A layer that keeps its spelling may read the cache, too.
      cache.window = known->window;
      cache.readers = known->readers;
    }
  }
  for (const ManifestCache& cache : whole.exported.caches)
    if (!findCache(manifest, cache.past) && isIn(graph, cache))
      manifest.caches.push_back(cache);
  completeRotations(whole, rewritten, manifest);
}

} // namespace kvopt::targets
