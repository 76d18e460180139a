// TargetRegistry, and the manifest of an unrewritten model.
#include "passes/target.h"

namespace kvopt {

void TargetRegistry::add(std::unique_ptr<Target> target) {
  assert(!find(target->name()) && "target names are unique");
  targets.push_back(std::move(target));
}

const Target* TargetRegistry::find(llvm::StringRef name) const {
  for (const std::unique_ptr<Target>& target : targets)
    if (target->name() == name)
      return target.get();
  return nullptr;
}

ManifestCache describeCache(const CacheUpdate& update, unsigned layer, CacheRole role) {
  ManifestCache cache;
  cache.layer = layer;
  cache.role = role;
  cache.past = update.past->name().str();
  cache.present = update.present->name().str();
  cache.sequenceAxis = update.axis;
  cache.dtype = update.past->type().elementType();
  for (const Dim& extent : update.past->type().shape()) {
    if (std::optional<int64_t> fixed = extent.value())
      cache.shape.emplace_back(*fixed);
    else
      cache.shape.emplace_back(extent.str());
  }
  return cache;
}

Manifest growingManifest(llvm::ArrayRef<AttentionSite> sites) {
  Manifest manifest;
  manifest.target = "none";
  manifest.contract = CacheContract::Growing;
  for (const AttentionSite& site : sites) {
    if (!site.hasCache())
      continue;
    manifest.caches.push_back(describeCache(*site.key, site.layer, CacheRole::Key));
    manifest.caches.push_back(describeCache(*site.value, site.layer, CacheRole::Value));
  }
  return manifest;
}

} // namespace kvopt
