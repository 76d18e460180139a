// What a session's caches are given from outside: made-up rows, or those of another session.
#include "runtime/cache/checksum.h"
#include "runtime/exec/input_binding.h"
#include "runtime/session/ring_rows.h"
#include "runtime/session/session.h"
#include "support/diagnostic.h"
#include "support/half.h"

#include "llvm/ADT/STLExtras.h"

#include <random>

namespace kvopt::runtime {
using namespace ir;

namespace {

/// A view whose axes are those of the model before it was rewritten, with the axes that the cache
/// has now.
TensorView inOwnOrder(const TensorView& exported, const ManifestCache& cache) {
  TensorView view = exported;
  for (size_t axis = 0; axis < cache.permutation.size(); ++axis) {
    view.shape[axis] = exported.shape[static_cast<size_t>(cache.permutation[axis])];
    view.strides[axis] = exported.strides[static_cast<size_t>(cache.permutation[axis])];
  }
  return view;
}

/// Caches as if they came from a file.
class StoredRows {
public:
  void add(const CacheGeometry& geometry, Tensor rows) {
    CacheFileContents::Cache cache;
    cache.entry.name = geometry.name;
    cache.entry.element = geometry.element;
    cache.entry.sequenceAxis = geometry.sequenceAxis();
    cache.entry.shape = rows.view.shape;
    cache.bytes = {rows.view.data, static_cast<size_t>(rows.view.byteSize())};
    contents.caches.push_back(std::move(cache));
    kept.push_back(std::move(rows));
  }

  CacheFileContents contents;

private:
  std::vector<Tensor> kept;
};

} // namespace

llvm::Expected<Tensor> Session::presetRows(size_t index, int64_t tokens) const {
  const CacheGeometry& geometry = caches.geometry(index);
  const ManifestCache& cache = cacheInfo(index);
  if (!geometry.hasRowPerToken())
    return Tensor::zeros(allocator(), geometry.element, geometry.shape(geometry.initialRows));
  const Extents shape = geometry.shape(tokens);
  Extents exported = shape;
  for (size_t axis = 0; axis < cache.permutation.size(); ++axis)
    exported[static_cast<size_t>(cache.permutation[axis])] = shape[axis];
  auto made = Tensor::create(allocator(), ElementType::Float, exported);
  if (!made)
    return made;
  std::mt19937_64 random(Checksum::of(std::as_bytes(std::span(cache.past))));
  std::uniform_int_distribution<int> steps(-64, 64);
  for (int64_t i = 0; i < made->view.elementCount(); ++i)
    made->view.as<float>()[i] = static_cast<float>(steps(random)) / 64;
  auto rows = Tensor::copyOf(allocator(), inOwnOrder(made->view, cache));
  if (!rows || geometry.element == ElementType::Float)
    return rows;
  const bool isHalf = geometry.element == ElementType::Float16;
  if (!isHalf && geometry.element != ElementType::BFloat16)
    return unsupported("rows of cache '{}' ({}) cannot be made up", cache.past,
                       onnxName(geometry.element));
  auto narrow = Tensor::create(allocator(), geometry.element, shape);
  if (!narrow)
    return narrow;
  for (int64_t i = 0; i < narrow->view.elementCount(); ++i) {
    const float number = rows->view.as<float>()[i];
    narrow->view.as<uint16_t>()[i] = isHalf ? floatToF16(number) : floatToBf16(number);
  }
  return narrow;
}

llvm::Error Session::preset(int64_t tokens) {
  if (llvm::Error error = checkRunning())
    return error;
  if (tokens < 0)
    return usageError("cannot make up {} tokens", tokens);
  llvm::Expected<int64_t> room = roomFor(tokens);
  if (!room)
    return room.takeError();
  StoredRows stored;
  stored.contents.lengths.assign(static_cast<size_t>(batch()), tokens);
  for (size_t i = 0; i < caches.size(); ++i) {
    auto rows = presetRows(i, tokens);
    if (!rows)
      return rows.takeError();
    stored.add(caches.geometry(i), std::move(*rows));
  }
  return caches.restore(stored.contents, hasShared() ? *room : 0);
}

llvm::Expected<Tensor> Session::seededRows(size_t index, const TensorView& exported,
                                           int64_t tokens) const {
  const CacheGeometry& geometry = caches.geometry(index);
  const ManifestCache& cache = cacheInfo(index);
  auto differs = [&](const std::string& expected) {
    return usageError("cache '{}' is {}, it was given {} {}", cache.past, expected,
                      onnxName(exported.element), extentsText(exported.shape));
  };
  if (exported.rank() != geometry.extents.size())
    return differs(fmt::format("of {} axes", geometry.extents.size()));
  const TensorView view = inOwnOrder(exported, cache);
  const unsigned axis = geometry.sequenceAxis();
  const int64_t rows = view.shape[axis];
  const int64_t slots = geometry.initialRows;
  const bool isFixedRing = isRing(*this, index);
  const int64_t fewest = isFixedRing                 ? std::min(tokens, slots - 1)
                         : geometry.hasRowPerToken() ? tokens
                                                     : slots;
  const int64_t most =
      isFixedRing || geometry.update == CacheUpdate::Ring ? std::max(tokens, slots) : fewest;
  if (view.element != geometry.element || view.shape != geometry.shape(rows) || rows < fewest ||
      rows > most)
    return differs(
        fmt::format("{} {}", onnxName(geometry.element), extentsText(geometry.shape(fewest))));
  if (!isFixedRing)
    return Tensor::copyOf(allocator(), view);
  auto ring = Tensor::zeros(allocator(), geometry.element, geometry.shape(slots));
  if (!ring)
    return ring;
  const int64_t count = std::min({rows, slots, tokens});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t slot = (tokens - count + i) % slots;
    copyElements(sliceAxis(view, axis, rows - count + i, rows - count + i + 1),
                 sliceAxis(ring->view, axis, slot, slot + 1));
  }
  return ring;
}

llvm::Error Session::seed(llvm::ArrayRef<NamedView> seeds, int64_t tokens) {
  if (llvm::Error error = checkRunning())
    return error;
  if (tokens < 0)
    return usageError("a session cannot hold {} tokens", tokens);
  if (caches.isRagged())
    return usageError("batch rows of different lengths cannot be seeded");
  std::vector<const NamedView*> sources(caches.size(), nullptr);
  for (const NamedView& view : seeds) {
    size_t found = 0;
    while (found < caches.size() && cacheInfo(found).past != view.name)
      ++found;
    if (found == caches.size())
      return usageError("the model has no cache '{}'", view.name);
    if (std::exchange(sources[found], &view))
      return usageError("cache '{}' was given twice", view.name);
  }
  llvm::Expected<int64_t> room = roomFor(tokens);
  if (!room)
    return room.takeError();
  StoredRows stored;
  stored.contents.lengths.assign(static_cast<size_t>(batch()), tokens);
  for (size_t i = 0; i < caches.size(); ++i) {
    if (!sources[i] && tokens != length())
      return usageError("cache '{}' must be given too: the session holds {} tokens, not {}",
                        cacheInfo(i).past, length(), tokens);
    auto rows = sources[i] ? seededRows(i, sources[i]->view, tokens)
                           : Tensor::copyOf(allocator(), cacheView(i));
    if (!rows)
      return rows.takeError();
    stored.add(caches.geometry(i), std::move(*rows));
  }
  return caches.restore(stored.contents, hasShared() ? *room : 0);
}

} // namespace kvopt::runtime
