// Codes times scales.
#include "runtime/session/dequantized_cache.h"

#include "runtime/memory/element_storage.h"
#include "runtime/simd/four_bit_rows.h"
#include "support/diagnostic.h"
#include "support/half.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

/// The products of four-bit codes and multipliers, contiguous, as int8.
llvm::Expected<Tensor> unpackedCodes(const CacheState& caches, const TensorView& packed,
                                     const ManifestCache& info) {
  Extents shape = packed.shape;
  const std::optional<CacheLayout> layout = info.layout();
  if (!layout || layout->columnAxis() + 1 != packed.rank())
    return invalid("the columns of cache '{}' are not side by side", info.past);
  shape.back() = info.codeColumns;
  auto result = Tensor::create(caches.allocator(), ElementType::Int8, shape);
  if (!result)
    return result;
  Extents index(packed.rank(), 0);
  auto* to = result->view.as<int8_t>();
  const int64_t rows = result->view.elementCount() / info.codeColumns;
  for (int64_t row = 0; row < rows; ++row, to += info.codeColumns) {
    int64_t at = 0;
    for (unsigned axis = 0; axis + 1 < packed.rank(); ++axis)
      at += index[axis] * packed.strides[axis];
    simd::unpackFourBitRows({packed.data + at, 0, info.codeColumns}, 1, to);
    for (unsigned axis = packed.rank() - 1; axis-- > 0 && ++index[axis] == packed.shape[axis];)
      index[axis] = 0;
  }
  return result;
}

} // namespace

llvm::Expected<Tensor> dequantizedCache(const CacheState& caches, size_t cache, size_t scales,
                                        ElementType element) {
  auto codes = caches.rows(cache);
  if (!codes)
    return codes;
  auto factors = caches.rows(scales);
  if (!factors)
    return factors;
  return dequantizedRows(caches, cache, codes->view, factors->view, element);
}

llvm::Expected<Tensor> dequantizedRows(const CacheState& caches, size_t cache,
                                       const TensorView& rows, const TensorView& scales,
                                       ElementType element) {
  TensorView codes = rows;
  Tensor unpacked;
  if (caches.info(cache).codeColumns != 0) {
    auto products = unpackedCodes(caches, codes, caches.info(cache));
    if (!products)
      return products.takeError();
    unpacked = std::move(*products);
    codes = unpacked.view;
  }
  TensorView factors = scales;
  if (!storageOf(element) || factors.element != ElementType::Float ||
      factors.rank() != codes.rank())
    return invalid("the scales of cache '{}' do not fit it", caches.info(cache).past);
  for (unsigned axis = 0; axis < codes.rank(); ++axis) {
    if (factors.shape[axis] == 1)
      factors.strides[axis] = 0;
    else if (factors.shape[axis] != codes.shape[axis])
      return invalid("the scales of cache '{}' do not fit it", caches.info(cache).past);
  }
  auto result = Tensor::create(caches.allocator(), element, codes.shape);
  if (!result)
    return result;
  Extents index(codes.rank(), 0);
  const int64_t count = codes.elementCount();
  for (int64_t i = 0; i < count; ++i) {
    int64_t codeAt = 0;
    int64_t factorAt = 0;
    for (unsigned axis = 0; axis < codes.rank(); ++axis) {
      codeAt += index[axis] * codes.strides[axis];
      factorAt += index[axis] * factors.strides[axis];
    }
    const float value =
        static_cast<float>(codes.as<int8_t>()[codeAt]) * factors.as<float>()[factorAt];
    if (element == ElementType::Float)
      result->view.as<float>()[i] = value;
    else
      result->view.as<uint16_t>()[i] =
          element == ElementType::Float16 ? floatToF16(value) : floatToBf16(value);
    for (unsigned axis = codes.rank(); axis-- > 0 && ++index[axis] == codes.shape[axis];)
      index[axis] = 0;
  }
  return result;
}

} // namespace kvopt::runtime
