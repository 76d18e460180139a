// Codes times scales.
#include "runtime/session/dequantized_cache.h"

#include "runtime/memory/coded_row.h"
#include "runtime/memory/element_storage.h"
#include "support/diagnostic.h"
#include "support/half.h"

#include <cstring>

namespace kvopt::runtime {
using namespace ir;

namespace {

/// Numbers that codes represent before scaling: contiguous, as float.
llvm::Expected<Tensor> decodedCodes(const CacheState& caches, const TensorView& codes,
                                    const ManifestCache& info) {
  const RowCode* code = rowCodeOf(info.dtype);
  const std::optional<CacheLayout> layout = info.layout();
  if (!code || !layout || layout->rank() != codes.rank() || codes.element != code->element)
    return invalid("the rows of cache '{}' are not codes", info.past);
  const unsigned columnAxis = layout->columnAxis();
  if (code->isPacked() && columnAxis + 1 != codes.rank())
    return invalid("the columns of cache '{}' are not side by side", info.past);
  Extents shape = codes.shape;
  const int64_t elements = shape[columnAxis];
  if (code->isPacked())
    shape[columnAxis] = info.codeColumns;
  auto result = Tensor::create(caches.allocator(), ElementType::Float, shape);
  if (!result)
    return result;
  const int64_t columns = shape[columnAxis];
  const int64_t rows = columns == 0 ? 0 : result->view.elementCount() / columns;
  const auto bytes = static_cast<int64_t>(*byteWidth(codes.element));
  std::vector<std::byte> row(static_cast<size_t>(elements * bytes));
  std::vector<float> numbers(static_cast<size_t>(columns));
  Extents index(codes.rank(), 0);
  for (int64_t i = 0; i < rows; ++i) {
    int64_t from = 0, to = 0;
    for (unsigned axis = 0; axis < codes.rank(); ++axis) {
      from += index[axis] * codes.strides[axis];
      to += index[axis] * result->view.strides[axis];
    }
    for (int64_t column = 0; column < elements; ++column)
      std::memcpy(row.data() + column * bytes,
                  codes.data + (from + column * codes.strides[columnAxis]) * bytes,
                  static_cast<size_t>(bytes));
    decodeRow(*code, row.data(), columns, numbers.data());
    for (int64_t column = 0; column < columns; ++column)
      result->view.as<float>()[to + column * result->view.strides[columnAxis]] =
          numbers[static_cast<size_t>(column)];
    for (unsigned axis = codes.rank(); axis-- > 0;) {
      if (axis == columnAxis)
        continue;
      if (++index[axis] != codes.shape[axis])
        break;
      index[axis] = 0;
    }
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
  auto decoded = decodedCodes(caches, rows, caches.info(cache));
  if (!decoded)
    return decoded;
  const TensorView& codes = decoded->view;
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
    const float value = codes.as<float>()[codeAt] * factors.as<float>()[factorAt];
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
