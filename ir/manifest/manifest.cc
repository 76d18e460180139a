// Properties that follow from a manifest, and the manifest as JSON.
#include "ir/manifest/manifest.h"

#include "ir/manifest/field_table.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {

ManifestCache::ManifestCache() = default;
ManifestCache::ManifestCache(const ManifestCache&) = default;
ManifestCache::ManifestCache(ManifestCache&&) noexcept = default;
ManifestCache& ManifestCache::operator=(const ManifestCache&) = default;
ManifestCache& ManifestCache::operator=(ManifestCache&&) noexcept = default;
ManifestCache::~ManifestCache() = default;

Manifest::Manifest() = default;
Manifest::Manifest(const Manifest&) = default;
Manifest::Manifest(Manifest&&) noexcept = default;
Manifest& Manifest::operator=(const Manifest&) = default;
Manifest& Manifest::operator=(Manifest&&) noexcept = default;
Manifest::~Manifest() = default;

std::string ManifestPart::text(llvm::StringRef cache) const {
  std::string places;
  for (size_t axis = 0; axis < first.size(); ++axis) {
    const bool isDropped = llvm::is_contained(dropped, static_cast<int64_t>(axis));
    if (!isDropped && first[axis] == 0)
      continue;
    if (!places.empty())
      places += ", ";
    places +=
        isDropped ? std::to_string(first[axis]) : formatted("axis {} from {}", axis, first[axis]);
  }
  return formatted("{}[{}]", cache, places.empty() ? "0" : places);
}

bool ManifestCache::givesNewRows() const {
  const auto* growing = std::get_if<GrowingCache>(&storage);
  return growing && growing->givesNewRows;
}

llvm::ArrayRef<std::string> ManifestCache::blocks() const {
  const auto* inBlocks = std::get_if<BlockCache>(&storage);
  return inBlocks ? llvm::ArrayRef(inBlocks->inputs) : llvm::ArrayRef<std::string>();
}

std::optional<int64_t> ManifestCache::fixedRows() const {
  const auto* rows = std::get_if<int64_t>(&shape[static_cast<size_t>(sequenceAxis)]);
  return rows ? std::optional<int64_t>(*rows) : std::nullopt;
}

bool Manifest::sharesBuffers() const {
  return llvm::any_of(caches, [](const ManifestCache& cache) { return cache.isOneBuffer(); });
}

bool Manifest::hasPools() const {
  return llvm::any_of(caches, [](const ManifestCache& cache) { return cache.isPool(); });
}

bool Manifest::ownsCaches() const {
  return sharesBuffers() ||
         llvm::any_of(caches, [](const ManifestCache& cache) { return !cache.blocks().empty(); });
}

std::string manifestText(const OrderedJson& json) {
  // JSON cannot have names that are not UTF-8. By default, `dump` throws.
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string Manifest::json() const { return manifestText(valueJson(*this)); }

} // namespace kvopt::ir
