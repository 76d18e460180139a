// TargetRegistry, and the manifest of an unrewritten model.
#include "passes/target.h"

#include "llvm/ADT/SmallPtrSet.h"

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
  cache.present = update.output->name().str();
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
  llvm::SmallPtrSet<const Value*, 16> described;
  for (const AttentionSite& site : sites) {
    if (!site.hasCache() || !site.key->output || !site.value->output)
      continue;
    if (site.pastFlag)
      addFlag(*site.pastFlag, manifest);
    if (!described.insert(site.key->past).second)
      continue; // in another branch
    manifest.caches.push_back(describeCache(*site.key, site.layer, CacheRole::Key));
    manifest.caches.push_back(describeCache(*site.value, site.layer, CacheRole::Value));
  }
  return manifest;
}

void addFlag(const PastFlag& flag, Manifest& manifest) {
  ManifestLength input;
  input.input = flag.input->name().str();
  for (const ManifestLength& known : manifest.lengths)
    if (known.input == input.input)
      return;
  input.dtype = ElementType::Bool;
  for (const Dim& extent : flag.input->type().shape())
    input.shape.emplace_back(extent.value().value_or(1));
  input.feed = flag.withPast ? LengthFeed::HasPast : LengthFeed::NoPast;
  manifest.lengths.push_back(std::move(input));
}

} // namespace kvopt
