// Quantizing rows outside of a model.
#include "runtime/session/quantized_rows.h"

#include "runtime/memory/element_storage.h"
#include "runtime/session/dequantized_cache.h"
#include "runtime/simd/four_bit_rows.h"
#include "runtime/simd/quantize_row.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

/// Codes, and a scale for each row.
struct QuantizedRows {
  Tensor codes;
  Tensor scales;
};

llvm::Expected<QuantizedRows> quantizedRows(const Session& session, size_t cache,
                                            const TensorView& rows) {
  const ManifestCache& info = session.cacheInfo(cache);
  const auto storage = storageOf(rows.element);
  const std::optional<CacheLayout> layout = info.layout();
  if (!storage || rows.rank() == 0 || !layout || layout->columnAxis() + 1 != rows.rank())
    return unsupported("the columns of cache '{}' are not side by side", info.past);
  auto packed = Tensor::copyOf(session.allocator(), rows);
  if (!packed)
    return packed.takeError();
  const int64_t width = rows.shape.back();
  Extents shape = rows.shape;
  shape.back() = 1;
  auto scales = Tensor::create(session.allocator(), ElementType::Float, shape);
  if (!scales)
    return scales.takeError();
  shape.back() = info.codeColumns != 0 ? FourBitRow{width}.bytes() : width;
  auto codes = Tensor::create(session.allocator(), info.dtype, shape);
  if (!codes)
    return codes.takeError();
  const int64_t rowBytes =
      packed->view.byteSize() / std::max<int64_t>(1, scales->view.elementCount());
  for (int64_t row = 0; row < scales->view.elementCount(); ++row) {
    const std::byte* from = packed->view.data + row * rowBytes;
    std::byte* to = codes->view.data + row * shape.back();
    scales->view.as<float>()[row] =
        info.codeColumns != 0
            ? simd::quantizeFourBitRow(from, *storage, width, reinterpret_cast<uint8_t*>(to))
            : simd::quantizeRow(from, *storage, static_cast<size_t>(width),
                                reinterpret_cast<int8_t*>(to));
  }
  return QuantizedRows{std::move(*codes), std::move(*scales)};
}

std::optional<size_t> counterpartOf(const ManifestCache& wanted, const Session& exact) {
  for (size_t i = 0; i < exact.cacheCount(); ++i)
    if (exact.cacheInfo(i).past == wanted.past)
      return i;
  return std::nullopt;
}

} // namespace

llvm::Error seedQuantized(Session& quantized, const Session& exact) {
  std::vector<QuantizedRows> made;
  std::vector<NamedView> rows;
  made.reserve(quantized.cacheCount()); // views point into it
  for (size_t i = 0; i < quantized.cacheCount(); ++i) {
    const ManifestCache& cache = quantized.cacheInfo(i);
    if (isScale(cache.role))
      continue; // comes with its codes
    const std::optional<size_t> source = counterpartOf(cache, exact);
    if (!source)
      return unsupported("no cache has the rows of '{}'", cache.past);
    const TensorView view = exact.exportedCacheView(*source);
    const std::optional<size_t> scales = scalesOf(quantized, i);
    if (!scales) {
      rows.push_back({cache.past, view});
      continue;
    }
    auto codes = quantizedRows(quantized, i, view);
    if (!codes)
      return codes.takeError();
    made.push_back(std::move(*codes));
    rows.push_back({cache.past, made.back().codes.view});
    rows.push_back({quantized.cacheInfo(*scales).past, made.back().scales.view});
  }
  return quantized.seed(rows, exact.length(), Session::RowOrigin::ThisModel);
}

} // namespace kvopt::runtime
