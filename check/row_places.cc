// Placement of rows by the storage of their cache.
#include "check/row_places.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::check {

Ref RowPlaces::ofInput(const Ref& rows, size_t block, const Step& step,
                       std::string& failure) const {
  const auto axis = static_cast<unsigned>(cache.sequenceAxis);
  Extents shape = rows->shape;
  if (axis >= shape.size())
    return rows;
  int64_t extent = 0, first = 0, last = step.past;
  bool isRing = false;
  switch (cache.update()) {
  case ir::CacheUpdate::Grows:
    if (!std::holds_alternative<ir::BufferCache>(cache.storage))
      return rows;
    extent = cache.fixedRows().value_or(step.total() + step.spare);
    break;
  case ir::CacheUpdate::Ring:
    if (!cache.fixedRows()) {
      failure = "the number of rows that the cache '" + cache.past + "' keeps is unknown";
      return nullptr;
    }
    extent = *cache.fixedRows();
    isRing = !movesRows;
    first = isRing ? std::max<int64_t>(0, step.past - extent) : step.past - extent;
    break;
  case ir::CacheUpdate::Blocks: {
    const int64_t before = static_cast<int64_t>(block) * manifest.blockSize;
    first = before;
    last = std::min(step.past, first + manifest.blockSize);
    if (first > last)
      first = last;
    if (manifest.variants.empty())
      return rowsOf(rows, axis, first, last);
    extent = manifest.blockSize;
    if (manifest.capacityValue)
      extent = std::min(extent, *manifest.capacityValue - before);
    if (step.past > before)
      first = before;
    break;
  }
  default:
    return rows;
  }
  if (last - first > extent) {
    failure = "the cache '" + cache.past + "' has no room for its rows";
    return nullptr;
  }
  shape[axis] = extent;
  if (elementCount(shape) < 0) {
    failure = "the cache '" + cache.past + "' is too large";
    return nullptr;
  }
  const Extents rowStrides = stridesOf(rows->shape);
  std::vector<int64_t> places;
  forEachPlace(shape, [&](llvm::ArrayRef<int64_t> place) {
    int64_t row = first + place[axis];
    if (isRing) // the last row in this place
      row = first + ((place[axis] - first) % extent + extent) % extent;
    if (row < 0 || row >= last) {
      places.push_back(-1 - static_cast<int64_t>(places.size()));
      return;
    }
    int64_t at = 0;
    for (size_t i = 0; i < place.size(); ++i)
      at += (i == axis ? row : place[i]) * rowStrides[i];
    places.push_back(rows->integers[static_cast<size_t>(at)]);
  });
  return integerTensor(shape, std::move(places));
}

std::optional<CachedRows> RowPlaces::ofResult(const Ref& present, const Step& step) const {
  const auto axis = static_cast<unsigned>(cache.sequenceAxis);
  if (axis >= present->shape.size())
    return std::nullopt;
  const int64_t extent = present->shape[axis];
  switch (cache.update()) {
  case ir::CacheUpdate::Grows:
    if (cache.givesNewRows())
      return CachedRows{present, step.past};
    if (extent < step.total())
      return std::nullopt;
    return CachedRows{rowsOf(present, axis, 0, step.total()), 0};
  case ir::CacheUpdate::Blocks:
    return CachedRows{present, step.past};
  case ir::CacheUpdate::Ring: {
    if (extent == 0)
      return std::nullopt;
    const int64_t first = std::max<int64_t>(0, step.total() - extent);
    if (movesRows)
      return CachedRows{rowsOf(present, axis, extent - (step.total() - first), extent), first};
    Extents shape = present->shape;
    shape[axis] = step.total() - first;
    const Extents strides = stridesOf(present->shape);
    return CachedRows{rearranged(present, shape,
                                 [&](llvm::ArrayRef<int64_t> place) {
                                   int64_t at = 0;
                                   for (size_t i = 0; i < place.size(); ++i)
                                     at += (i == axis ? (first + place[i]) % extent : place[i]) *
                                           strides[i];
                                   return at;
                                 }),
                      first};
  }
  default:
    return CachedRows{present, -1};
  }
}

Ref asPartOf(const ir::ManifestCache& cache, const Ref& exported) {
  Ref result = exported;
  if (cache.part) {
    const ir::ManifestPart& part = *cache.part;
    Extents shape, offsets;
    size_t own = 0;
    for (size_t i = 0; i < result->shape.size(); ++i) {
      const bool isDropped = llvm::is_contained(part.dropped, static_cast<int64_t>(i));
      const int64_t first = i < part.first.size() ? part.first[i] : 0;
      int64_t extent = result->shape[i] - first;
      if (!isDropped) {
        const size_t mine =
            cache.permutation.empty()
                ? own
                : static_cast<size_t>(llvm::find(cache.permutation, static_cast<int64_t>(own)) -
                                      cache.permutation.begin());
        if (mine < cache.shape.size() && std::holds_alternative<int64_t>(cache.shape[mine]) &&
            static_cast<int64_t>(mine) != cache.sequenceAxis)
          extent = std::get<int64_t>(cache.shape[mine]);
        ++own;
        shape.push_back(extent);
      }
      result = rowsOf(result, unsigned(i), first, isDropped ? first + 1 : first + extent);
    }
    result = reshaped(result, shape);
  }
  return cache.permutation.empty() ? result : transposed(result, cache.permutation);
}

} // namespace kvopt::check
