// Properties that follow from the storage of a cache.
#include "ir/manifest/cache_storage.h"

#include <cstdlib>

namespace kvopt::ir {

CacheUpdate updateOf(const CacheStorage& storage) {
  // In the order of the alternatives.
  constexpr CacheUpdate updates[] = {CacheUpdate::Grows, CacheUpdate::Grows,   CacheUpdate::Grows,
                                     CacheUpdate::Ring,  CacheUpdate::Static,  CacheUpdate::Blocks,
                                     CacheUpdate::State, CacheUpdate::ReadOnly};
  static_assert(std::size(updates) == std::variant_size_v<CacheStorage>);
  return updates[storage.index()];
}

bool isOneBuffer(const CacheStorage& storage) {
  if (const auto* ring = std::get_if<RingCache>(&storage))
    return ring->isOneBuffer;
  if (const auto* fixed = std::get_if<StaticCache>(&storage))
    return fixed->isOneBuffer;
  return std::holds_alternative<BufferCache>(storage) || std::holds_alternative<PoolCache>(storage);
}

CacheStorage storageOf(CacheUpdate update) {
  switch (update) {
  case CacheUpdate::Grows:
    return GrowingCache();
  case CacheUpdate::InPlace:
    return BufferCache();
  case CacheUpdate::Ring:
    return RingCache();
  case CacheUpdate::Static:
    return StaticCache();
  case CacheUpdate::Blocks:
    return BlockCache();
  case CacheUpdate::State:
    return StateCache();
  case CacheUpdate::ReadOnly:
    return ReadOnlyCache();
  case CacheUpdate::None:
  case CacheUpdate::Unproved:
    break;
  }
  std::abort(); // not a cache of a manifest
}

CacheStorage inOneBuffer(const CacheStorage& storage) {
  if (std::holds_alternative<GrowingCache>(storage))
    return BufferCache();
  if (std::holds_alternative<RingCache>(storage))
    return RingCache{true};
  if (std::holds_alternative<StaticCache>(storage))
    return StaticCache{true};
  return storage;
}

} // namespace kvopt::ir
