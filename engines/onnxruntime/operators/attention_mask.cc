// Extents and columns of masks.
#include "engines/onnxruntime/operators/attention_mask.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace kvopt::onnxruntime {

AttentionMask::AttentionMask(const Call& call, const Tensor& mask)
    : type(mask.type), data(mask.data) {
  if (mask.rank() > 4 || (type != ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL && !storageOf(type)))
    call.fail("a mask " + std::string(elementName(type)) + textOf(mask.shape) +
              "; it should be boolean or floating-point of at most four axes");
  std::copy(mask.shape.begin(), mask.shape.end(), std::end(extents) - mask.rank());
  rowStride = extents[3];
}

AttentionMask AttentionMask::open(Call& call, int64_t columns) {
  const Tensor mask = call.scratchTensor(ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, {1, columns});
  std::fill_n(mask.as<uint8_t>(), columns, uint8_t{1});
  return AttentionMask(call, mask);
}

void AttentionMask::keepFirst(const Call& call, int64_t count) {
  if (extents[3] < count)
    call.fail("the mask has " + std::to_string(extents[3]) + " columns for " +
              std::to_string(count) + " keys");
  extents[3] = count;
}

void AttentionMask::hideAfter(Call& call, int64_t rows, int64_t first) {
  const int64_t slices = extents[0] * extents[1], columns = extents[3];
  call.require(extents[2] == 1 || extents[2] == rows, "the mask has another number of rows");
  const bool isBoolean = type == ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL;
  const ElementType copied = isBoolean ? type : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  const Tensor copy = call.scratchTensor(copied, {slices, rows, columns});
  for (int64_t slice = 0; slice < slices; ++slice)
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t from = slice * extents[2] + (extents[2] == 1 ? 0 : row);
      const std::byte* source = data + from * rowStride * elementBytes(type);
      const int64_t to = (slice * rows + row) * columns;
      const int64_t seen = std::clamp<int64_t>(first + row + 1, 0, columns);
      if (isBoolean) {
        std::copy_n(reinterpret_cast<const uint8_t*>(source), seen, copy.as<uint8_t>() + to);
        std::fill_n(copy.as<uint8_t>() + to + seen, columns - seen, uint8_t{0});
      } else {
        loadNumbers(source, *storageOf(type), seen, copy.as<float>() + to);
        std::fill_n(copy.as<float>() + to + seen, columns - seen,
                    -std::numeric_limits<float>::infinity());
      }
    }
  type = copied;
  data = copy.data;
  extents[2] = rows;
  rowStride = columns;
}

void AttentionMask::keepLast(const Call& call, int64_t count) {
  if (extents[3] == 1)
    return;
  if (extents[3] < count)
    call.fail("the mask has " + std::to_string(extents[3]) + " columns for " +
              std::to_string(count) + " keys");
  data += (extents[3] - count) * elementBytes(type);
  extents[3] = count;
}

void AttentionMask::rotate(Call& call, int64_t shift) {
  const int64_t columns = extents[3], rows = extents[0] * extents[1] * extents[2];
  if (columns <= 1 || shift == 0 || rows == 0)
    return;
  const int64_t bytes = elementBytes(type);
  std::byte* const copy = call.scratchTensor(type, {rows, columns}).data;
  const auto part = [&](int64_t count) { return static_cast<size_t>(count * bytes); };
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* from = data + row * rowStride * bytes;
    std::byte* to = copy + row * columns * bytes;
    std::memcpy(to, from + shift * bytes, part(columns - shift));
    std::memcpy(to + (columns - shift) * bytes, from, part(shift));
  }
  data = copy;
  rowStride = columns;
}

void AttentionMask::apply(const Call& call, simd::AttentionView& view) const {
  const int64_t wanted[] = {view.batches, view.queryHeads, view.queryRows, view.totalLength};
  for (int axis = 0; axis < 4; ++axis)
    if (extents[axis] != 1 && extents[axis] != wanted[axis])
      call.fail("the mask's extent " + std::to_string(extents[axis]) + " on axis " +
                std::to_string(axis) + " of [B,H,S,T] is neither 1 nor " +
                std::to_string(wanted[axis]));
  const auto stride = [&](int axis, int64_t of) { return extents[axis] == 1 ? 0 : of; };
  const bool isBoolean = type == ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL;
  view.maskKind = isBoolean ? simd::MaskKind::boolean : simd::MaskKind::additive;
  if (!isBoolean)
    view.maskStorage = *storageOf(type);
  view.mask = data;
  view.maskStrides = {stride(0, extents[1] * extents[2] * rowStride),
                      stride(1, extents[2] * rowStride), stride(2, rowStride), stride(3, 1)};
}

} // namespace kvopt::onnxruntime
