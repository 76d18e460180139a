// Quantization of rows outside of a model.
#include "runtime/session/quantized_rows.h"

#include "runtime/memory/coded_row.h"
#include "runtime/memory/element_storage.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

/// Codes with a scale for each row.
struct QuantizedRows {
  Tensor codes;
  Tensor scales;
};

llvm::Expected<QuantizedRows> quantizedRows(const CacheState& caches, size_t cache,
                                            const TensorView& rows) {
  const ManifestCache& info = caches.info(cache);
  const auto storage = storageOf(rows.element);
  const std::optional<CacheLayout> layout = info.layout();
  if (!storage || rows.rank() == 0 || !layout || layout->columnAxis() + 1 != rows.rank())
    return unsupported("the columns of cache '{}' are not side by side", info.past);
  auto packed = Tensor::copyOf(caches.allocator(), rows);
  if (!packed)
    return packed.takeError();
  const int64_t width = rows.shape.back();
  Extents shape = rows.shape;
  shape.back() = 1;
  auto scales = Tensor::create(caches.allocator(), ElementType::Float, shape);
  if (!scales)
    return scales.takeError();
  const RowCode& code = *rowCodeOf(info.dtype); // the cache has scales
  shape.back() = code.elementsOf(width);
  auto codes = Tensor::create(caches.allocator(), info.dtype, shape);
  if (!codes)
    return codes.takeError();
  const int64_t rowBytes =
      packed->view.byteSize() / std::max<int64_t>(1, scales->view.elementCount());
  for (int64_t row = 0; row < scales->view.elementCount(); ++row) {
    const std::byte* from = packed->view.data + row * rowBytes;
    std::byte* to = codes->view.data + row * shape.back() * int64_t{*byteWidth(info.dtype)};
    scales->view.as<float>()[row] = encodeRow(code, from, *storage, width, to);
  }
  return QuantizedRows{std::move(*codes), std::move(*scales)};
}

std::optional<size_t> counterpartOf(const ManifestCache& wanted, const CacheState& exact) {
  for (size_t i = 0; i < exact.size(); ++i)
    if (exact.info(i).past == wanted.past)
      return i;
  return std::nullopt;
}

} // namespace

llvm::Error seedQuantized(CacheState& quantized, const CacheState& exact) {
  std::vector<QuantizedRows> made;
  std::vector<Tensor> kept; ///< owners of the views
  std::vector<NamedView> rows;
  for (size_t i = 0; i < quantized.size(); ++i) {
    const ManifestCache& cache = quantized.info(i);
    if (isScale(cache.role))
      continue; // seeded together with its codes
    const std::optional<size_t> source = counterpartOf(cache, exact);
    if (!source)
      return unsupported("no cache has the rows of '{}'", cache.past);
    auto held = exact.exportedRows(*source);
    if (!held)
      return held.takeError();
    kept.push_back(*held);
    const TensorView& view = held->view;
    const std::optional<size_t> scales = quantized.scalesOf(i);
    if (!scales) {
      rows.push_back({cache.past, view});
      continue;
    }
    auto codes = quantizedRows(quantized, i, view);
    if (!codes)
      return codes.takeError();
    made.push_back(std::move(*codes));
    rows.push_back({cache.past, made.back().codes.view});
    rows.push_back({quantized.info(*scales).past, made.back().scales.view});
  }
  return quantized.seed(rows, exact.length(), SeedOrigin::ThisModel);
}

} // namespace kvopt::runtime
