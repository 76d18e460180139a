// Placement of rows by the storage of their cache.
#include "check/caches/row_places.h"

#include "check/caches/block_table.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::check {

/// Rows [batch,rows,heads,width] as a pool [blocks,block_size,heads,width].
Ref RowPlaces::inPool(const Ref& rows, const Step& step, std::string& failure) const {
  const auto table = BlockTable::of(manifest, step, failure);
  if (!table)
    return nullptr;
  if (rows->rank() != 4 || cache.sequenceAxis != 1) {
    failure = "the axes of the pool '" + cache.past + "' are unknown";
    return nullptr;
  }
  const Extents shape{table->blocks(), table->blockSize(), rows->shape[2], rows->shape[3]};
  if (elementCount(shape) < 0) {
    failure = "the pool '" + cache.past + "' is too large";
    return nullptr;
  }
  const int64_t count = elementCount(shape);
  std::vector<int64_t> places;
  for (int64_t at = 0; at < count; ++at)
    places.push_back(-1 - at);
  const auto rowElements = static_cast<size_t>(shape[2] * shape[3]);
  for (int64_t row = 0; row < step.batch; ++row)
    for (int64_t token = 0; token < step.past; ++token) {
      const auto from = static_cast<size_t>(row * step.past + token) * rowElements;
      const auto to = static_cast<size_t>(table->slot(row, token)) * rowElements;
      std::copy_n(rows->integers.begin() + static_cast<ptrdiff_t>(from), rowElements,
                  places.begin() + static_cast<ptrdiff_t>(to));
    }
  return integerTensor(shape, std::move(places));
}

Ref RowPlaces::ofInput(const Ref& rows, size_t block, const Step& step,
                       std::string& failure) const {
  const auto axis = static_cast<unsigned>(cache.sequenceAxis);
  Extents shape = rows->shape;
  if (axis >= shape.size())
    return rows;
  if (cache.isPool())
    return inPool(rows, step, failure);
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

std::optional<CachedRows> RowPlaces::ofPool(const Ref& present, const Step& step) const {
  std::string unused;
  const auto table = BlockTable::of(manifest, step, unused);
  if (!table || present->rank() != 4 || present->shape[0] != table->blocks() ||
      present->shape[1] != table->blockSize())
    return std::nullopt;
  const Extents shape{step.batch, step.total(), present->shape[2], present->shape[3]};
  const int64_t rowElements = shape[2] * shape[3];
  return CachedRows{rearranged(present, shape,
                               [&](llvm::ArrayRef<int64_t> place) {
                                 return table->slot(place[0], place[1]) * rowElements +
                                        place[2] * shape[3] + place[3];
                               }),
                    0};
}

Ref RowPlaces::foreignRows(const Ref& held, const Step& step) const {
  std::string unused;
  const auto table = cache.isPool() ? BlockTable::of(manifest, step, unused) : std::nullopt;
  if (!table || held->rank() == 0 || held->shape[0] != table->blocks())
    return nullptr;
  Extents shape = held->shape;
  std::vector<int64_t> foreign;
  for (int64_t block = 0; block < table->blocks(); ++block)
    if (table->isForeign(block))
      foreign.push_back(block);
  shape[0] = static_cast<int64_t>(foreign.size());
  const Extents strides = stridesOf(held->shape);
  return rearranged(held, shape, [&](llvm::ArrayRef<int64_t> place) {
    int64_t at = foreign[static_cast<size_t>(place[0])] * strides[0];
    for (size_t i = 1; i < place.size(); ++i)
      at += place[i] * strides[i];
    return at;
  });
}

std::optional<CachedRows> RowPlaces::ofResult(const Ref& present, const Step& step) const {
  const auto axis = static_cast<unsigned>(cache.sequenceAxis);
  if (axis >= present->shape.size())
    return std::nullopt;
  if (cache.isPool())
    return ofPool(present, step);
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

Ref asSecond(const ir::ManifestCache& first, const ir::ManifestCache& second, const Ref& rows) {
  // Both manifests describe the same form of an export's second.
  if (first.storage == second.storage && first.shape == second.shape && first.part == second.part &&
      first.permutation == second.permutation)
    return rows;
  Ref result = rows;
  if (second.part) {
    const ir::ManifestPart& part = *second.part;
    Extents shape, offsets;
    size_t own = 0;
    for (size_t i = 0; i < result->shape.size(); ++i) {
      const bool isDropped = llvm::is_contained(part.dropped, static_cast<int64_t>(i));
      const int64_t from = i < part.first.size() ? part.first[i] : 0;
      int64_t extent = result->shape[i] - from;
      if (!isDropped) {
        const size_t mine =
            second.permutation.empty()
                ? own
                : static_cast<size_t>(llvm::find(second.permutation, static_cast<int64_t>(own)) -
                                      second.permutation.begin());
        if (mine < second.shape.size() && std::holds_alternative<int64_t>(second.shape[mine]) &&
            static_cast<int64_t>(mine) != second.sequenceAxis)
          extent = std::get<int64_t>(second.shape[mine]);
        ++own;
        shape.push_back(extent);
      }
      result = rowsOf(result, unsigned(i), from, isDropped ? from + 1 : from + extent);
    }
    result = reshaped(result, shape);
  }
  return second.permutation.empty() ? result : transposed(result, second.permutation);
}

} // namespace kvopt::check
