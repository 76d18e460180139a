// Checks of given rows, and synthetic numbers.
#include "runtime/session/seeded_rows.h"

#include "runtime/cache/checksum.h"
#include "runtime/exec/input_binding.h"
#include "support/diagnostic.h"
#include "support/half.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

namespace {

/// A view with the axes of the exported model, converted to the cache's own axes.
/// has now.
TensorView inOwnOrder(const TensorView& exported, const ManifestCache& cache) {
  TensorView view = exported;
  for (size_t axis = 0; axis < cache.permutation.size(); ++axis) {
    view.shape[axis] = exported.shape[static_cast<size_t>(cache.permutation[axis])];
    view.strides[axis] = exported.strides[static_cast<size_t>(cache.permutation[axis])];
  }
  return view;
}

/// The last rows of `view` in the slots of their positions, after `tokens` tokens.
llvm::Expected<Tensor> ringOf(const TensorView& view, const CacheGeometry& geometry, int64_t tokens,
                              const std::shared_ptr<Allocator>& allocator) {
  const unsigned axis = geometry.sequenceAxis();
  const int64_t slots = geometry.initialRows;
  auto ring = Tensor::zeros(allocator, geometry.element, geometry.shape(slots));
  if (!ring)
    return ring;
  const int64_t rows = view.shape[axis];
  const int64_t count = std::min({rows, slots, tokens});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t slot = (tokens - count + i) % slots;
    copyElements(sliceAxis(view, axis, rows - count + i, rows - count + i + 1),
                 sliceAxis(ring->view, axis, slot, slot + 1));
  }
  return ring;
}

/// Numbers of rows with which a cache can be seeded.
struct RowCounts {
  int64_t fewest = 0;
  int64_t most = 0;
};

RowCounts rowCounts(const SeededCache& seeded) {
  const CacheGeometry& geometry = seeded.geometry;
  const int64_t slots = geometry.initialRows;
  RowCounts counts;
  if (geometry.isFixedRing())
    counts.fewest = std::min(seeded.tokens, std::max<int64_t>(slots - seeded.spareSlots, 0));
  else
    counts.fewest = geometry.hasRowPerToken() ? seeded.tokens : slots;
  counts.most =
      geometry.update == CacheUpdate::Ring ? std::max(seeded.tokens, slots) : counts.fewest;
  return counts;
}

/// Numbers in [-1, 1] that 16 bits represent exactly, and that depend only on `name` and the
/// element's position.
llvm::Expected<Tensor> madeUpNumbers(const std::string& name, ElementType element,
                                     const Extents& shape,
                                     const std::shared_ptr<Allocator>& allocator) {
  const bool isHalf = element == ElementType::Float16;
  const bool isBrain = element == ElementType::BFloat16;
  if (!isHalf && !isBrain && element != ElementType::Float)
    return unsupported("rows of cache '{}' ({}) cannot be made up", name, onnxName(element));
  auto made = Tensor::create(allocator, element, shape);
  if (!made)
    return made;
  // SplitMix64 (Steele, Lea and Flood, 2014), one byte for each number.
  uint64_t state = Checksum::of(std::as_bytes(std::span(name)));
  uint64_t bits = 0;
  for (int64_t i = 0; i < made->view.elementCount(); ++i, bits >>= 8) {
    if (i % 8 == 0) {
      bits = state += 0x9E3779B97F4A7C15;
      bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9;
      bits = (bits ^ bits >> 27) * 0x94D049BB133111EB;
      bits ^= bits >> 31;
    }
    const float number = static_cast<float>(static_cast<int>(bits & 0xFF) - 128) / 128;
    if (element == ElementType::Float)
      made->view.as<float>()[i] = number;
    else
      made->view.as<uint16_t>()[i] = isHalf ? floatToF16(number) : floatToBf16(number);
  }
  return made;
}

} // namespace

llvm::Expected<Tensor> seededRows(const SeededCache& seeded, const TensorView& exported,
                                  const std::shared_ptr<Allocator>& allocator) {
  const CacheGeometry& geometry = seeded.geometry;
  auto differs = [&](const std::string& expected) {
    return usageError("cache '{}' is {}, it was given {} {}", seeded.cache.past, expected,
                      onnxName(exported.element), extentsText(exported.shape));
  };
  if (exported.rank() != geometry.extents.size())
    return differs(formatted("of {} axes", geometry.extents.size()));
  const TensorView view = inOwnOrder(exported, seeded.cache);
  const int64_t rows = view.shape[geometry.sequenceAxis()];
  const RowCounts counts = rowCounts(seeded);
  if (view.element != geometry.element || view.shape != geometry.shape(rows) ||
      rows < counts.fewest || rows > counts.most)
    return differs(
        formatted("{} {}", onnxName(geometry.element), extentsText(geometry.shape(counts.fewest))));
  return geometry.isFixedRing() ? ringOf(view, geometry, seeded.tokens, allocator)
                                : Tensor::copyOf(allocator, view);
}

llvm::Expected<Tensor> madeUpRows(const SeededCache& seeded,
                                  const std::shared_ptr<Allocator>& allocator) {
  const auto& [cache, geometry, tokens, spareSlots] = seeded;
  if (cache.holdsAttendedRows)
    return unsupported("rows of cache '{}' cannot be made up: attention reads them as they are, "
                       "and would not in the exported model",
                       cache.past);
  if (geometry.update == CacheUpdate::State)
    return Tensor::zeros(allocator, geometry.element, geometry.shape(geometry.initialRows));
  const Extents shape = geometry.shape(tokens);
  Extents exported = shape;
  for (size_t axis = 0; axis < cache.permutation.size(); ++axis)
    exported[static_cast<size_t>(cache.permutation[axis])] = shape[axis];
  auto made = madeUpNumbers(cache.past, geometry.element, exported, allocator);
  if (!made)
    return made;
  if (geometry.isFixedRing())
    return seededRows(seeded, made->view, allocator);
  const TensorView rows = inOwnOrder(made->view, cache);
  const unsigned axis = geometry.sequenceAxis();
  // Only the model knows the number and order of the rows that it keeps.
  if (geometry.update == CacheUpdate::Ring && tokens == geometry.initialRows)
    return Tensor::copyOf(allocator, rows); // every order begins in the order of tokens
  if (geometry.update == CacheUpdate::Ring)
    return unsupported("rows of cache '{}' cannot be made up: their order is not known",
                       cache.past);
  if (geometry.update != CacheUpdate::Static)
    return Tensor::copyOf(allocator, rows);
  auto all = Tensor::zeros(allocator, geometry.element, geometry.shape(geometry.initialRows));
  if (all)
    copyElements(rows, sliceAxis(all->view, axis, 0, tokens));
  return all;
}

void StoredRows::add(const CacheGeometry& geometry, Tensor rows) {
  CacheFileContents::Cache cache;
  cache.entry.name = geometry.name;
  cache.entry.element = geometry.element;
  cache.entry.sequenceAxis = geometry.sequenceAxis();
  cache.entry.shape = rows.view.shape;
  cache.bytes = {rows.view.data, static_cast<size_t>(rows.view.byteSize())};
  contents.caches.push_back(std::move(cache));
  kept.push_back(std::move(rows));
}

} // namespace kvopt::runtime
