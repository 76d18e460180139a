// Capacities that are fixed, given, or growing.
#include "runtime/session/cache_room.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

namespace {
constexpr int64_t firstStatefulCapacity = 64;
} // namespace

const char CapacityError::ID = 0;

llvm::Error checkCapacity(const Manifest& manifest, int64_t capacity) {
  if (llvm::all_of(manifest.caches, [](const ManifestCache& cache) {
        return cache.update() == CacheUpdate::ReadOnly;
      }))
    return usageError("the model keeps no tokens in caches: it has no capacity");
  if (manifest.capacityValue && capacity != *manifest.capacityValue)
    return usageError("the model's cache capacity is {}, not {}", *manifest.capacityValue,
                      capacity);
  return llvm::Error::success();
}

bool CacheRoom::hasShared() const {
  return llvm::any_of(manifest.caches, [](const ManifestCache& cache) {
    return cache.isOneBuffer() && cache.update() == CacheUpdate::Grows;
  });
}

int64_t CacheRoom::limit() const {
  const bool isLimit = options.mode == SessionOptions::Mode::AsManifest && options.capacity != 0;
  return isLimit && !hasShared() ? options.capacity : INT64_MAX;
}

llvm::Expected<int64_t> CacheRoom::first() const {
  if (!hasShared())
    return 0;
  bool canGrow = options.mode == SessionOptions::Mode::Stateful && !manifest.capacityValue;
  int64_t room = options.capacity != 0    ? options.capacity
                 : manifest.capacityValue ? *manifest.capacityValue
                 : canGrow                ? firstStatefulCapacity
                                          : 0;
  if (room <= 0)
    return usageError("the model's cache capacity is open: the session must be given one");
  if (llvm::Error error = checkCapacity(manifest, room))
    return error;
  return wholeBlocks(room);
}

int64_t CacheRoom::wholeBlocks(int64_t room) const {
  const int64_t unit = manifest.hasPools() ? manifest.blockSize : 1;
  return room > INT64_MAX - unit ? room : (room + unit - 1) / unit * unit;
}

llvm::Expected<int64_t> CacheRoom::forTokens(int64_t tokens, const CacheSet& caches) const {
  auto tooMany = [&](int64_t room) {
    return usageError("{} tokens do not fit into the cache's capacity of {} ({} are in it)", tokens,
                      room, caches.length())
        .as<CapacityError>();
  };
  if (const int64_t most = std::min(caches.staticRoom(), limit()); tokens > most)
    return tooMany(most);
  int64_t room = caches.room();
  if (tokens <= room)
    return room;
  if (options.mode != SessionOptions::Mode::Stateful || manifest.capacityValue)
    return tooMany(room);
  return wholeBlocks(room > INT64_MAX / 2 ? tokens : std::max(tokens, 2 * room));
}

} // namespace kvopt::runtime
