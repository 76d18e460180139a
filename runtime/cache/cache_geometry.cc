// Extents of caches, and their batch axes.
#include "runtime/cache/cache_geometry.h"

#include "ir/dims/dim.h"
#include "runtime/memory/buffer.h"
#include "support/diagnostic.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

/// Value of a symbolic extent for `batch` rows.
std::optional<int64_t> openExtent(const std::string& text, int64_t batch) {
  std::optional<Dim> parsed = Dim::parse(text);
  Dim dim = parsed ? *parsed : Dim::symbol(text);
  if (dim.symbols().size() != 1)
    return std::nullopt;
  std::optional<int64_t> value =
      dim.evaluate([&](llvm::StringRef) -> std::optional<int64_t> { return batch; });
  return value && *value >= 0 ? value : std::nullopt;
}

struct BatchAxis {
  unsigned axis;
  int64_t slicesPerRow;
};

/// Axis of the batch rows: the only axis whose extent depends on the batch. If all extents are
/// fixed, the only axis with that extent.
std::optional<BatchAxis> findBatchAxis(const ManifestCache& cache, const Extents& extents,
                                       int64_t batch) {
  llvm::SmallVector<unsigned, 2> open;
  llvm::SmallVector<unsigned, 2> asLong;
  for (unsigned axis = 0; axis < cache.shape.size(); ++axis) {
    if (axis == static_cast<unsigned>(cache.sequenceAxis))
      continue;
    if (std::holds_alternative<std::string>(cache.shape[axis]))
      open.push_back(axis);
    else if (extents[axis] == batch)
      asLong.push_back(axis);
  }
  if (open.empty() && asLong.size() == 1)
    return BatchAxis{asLong.front(), 1};
  if (open.size() != 1)
    return std::nullopt;
  std::optional<int64_t> slices = openExtent(std::get<std::string>(cache.shape[open.front()]), 1);
  int64_t all = 0;
  if (!slices || __builtin_mul_overflow(*slices, batch, &all) || all != extents[open.front()])
    return std::nullopt;
  return BatchAxis{open.front(), *slices};
}

/// The layout, completed with the batch axis.
CacheLayout layoutOf(const ManifestCache& cache, const std::optional<BatchAxis>& rows) {
  llvm::SmallVector<std::string, 5> axes(cache.shape.size(), "?");
  axes[static_cast<size_t>(cache.sequenceAxis)] = "S";
  if (rows)
    axes[rows->axis] = rows->slicesPerRow == 1 ? "B" : "B?";
  return CacheLayout(axes);
}

} // namespace

llvm::Expected<Extents> manifestExtents(llvm::ArrayRef<ManifestExtent> shape, int64_t batch,
                                        std::optional<unsigned> rowsAxis, int64_t rows) {
  Extents result;
  for (unsigned axis = 0; axis < shape.size(); ++axis) {
    if (rowsAxis == axis) {
      result.push_back(rows);
    } else if (const auto* fixed = std::get_if<int64_t>(&shape[axis])) {
      result.push_back(*fixed);
    } else {
      const std::string& text = std::get<std::string>(shape[axis]);
      std::optional<int64_t> value = openExtent(text, batch);
      if (!value)
        return unsupported("the extent '{}' of a cache or length cannot be resolved", text);
      result.push_back(*value);
    }
  }
  return result;
}

llvm::Expected<CacheGeometry> CacheGeometry::create(const ManifestCache& cache, int64_t batch,
                                                    int64_t openRows) {
  assert(cache.sequenceAxis >= 0 && static_cast<size_t>(cache.sequenceAxis) < cache.shape.size());
  CacheGeometry geometry;
  geometry.name = cache.past;
  geometry.element = cache.dtype;
  geometry.update = cache.update();
  geometry.isOverwritten = cache.isOneBuffer();
  geometry.isShared = cache.isOneBuffer() && geometry.hasRowPerToken();
  geometry.holdsScales = isScale(cache.role);
  geometry.window = cache.window;
  geometry.initial = cache.initial;
  geometry.batch = batch;
  llvm::Expected<Extents> extents =
      manifestExtents(cache.shape, batch, static_cast<unsigned>(cache.sequenceAxis), 0);
  if (!extents)
    return extents.takeError();
  geometry.extents = std::move(*extents);
  const std::optional<BatchAxis> rows = findBatchAxis(cache, geometry.extents, batch);
  geometry.layout = layoutOf(cache, rows);
  if (rows)
    geometry.slicesPerRow = rows->slicesPerRow;
  if (!geometry.isShared && !geometry.hasRowPerToken()) {
    const std::optional<int64_t> fixed = cache.fixedRows();
    geometry.initialRows = fixed ? *fixed : geometry.update == CacheUpdate::Static ? openRows : 0;
    if (geometry.update == CacheUpdate::Static && geometry.initialRows == 0)
      return usageError("the capacity of cache '{}' is open: the session must be given one",
                        cache.past);
  }
  return geometry;
}

Extents CacheGeometry::shape(int64_t rows) const {
  Extents result = extents;
  result[sequenceAxis()] = rows;
  return result;
}

TensorView CacheGeometry::batchRow(const TensorView& tensor, int64_t row) const {
  const std::optional<unsigned> axis = batchAxis();
  assert((axis || batch == 1) && row >= 0 && row < batch);
  if (!axis)
    return tensor;
  return sliceAxis(tensor, *axis, row * slicesPerRow, (row + 1) * slicesPerRow);
}

} // namespace kvopt::runtime
