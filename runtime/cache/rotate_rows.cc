// Rotation and movement of rows, one at a time.
#include "runtime/cache/rotate_rows.h"

#include "runtime/memory/buffer.h"
#include "runtime/memory/element_storage.h"
#include "runtime/simd/four_bit_rows.h"
#include "runtime/simd/quantize_row.h"
#include "support/half.h"

#include <cmath>
#include <vector>

namespace kvopt::runtime {
using namespace ir;

namespace {

/// A pair of columns and its rotation.
struct TurnedPair {
  int64_t low, high;
  float cosine, sine;
};

std::vector<TurnedPair> turnedPairs(const ManifestRotation& rotation, int64_t columns,
                                    int64_t positions) {
  std::vector<TurnedPair> pairs;
  const auto count = static_cast<int64_t>(rotation.theta.size());
  for (int64_t start = rotation.first; start < columns; start += rotation.width)
    for (int64_t i = 0; i < count; ++i) {
      const double angle = static_cast<double>(positions) * rotation.theta[static_cast<size_t>(i)];
      const int64_t low = start + (rotation.interleaved ? 2 * i : i);
      pairs.push_back({low, low + (rotation.interleaved ? 1 : count),
                       static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))});
    }
  return pairs;
}

/// Calls `visit` for every row with its offsets in both tensors, in elements.
template <class Visit>
void forEachRow(const TensorView& rows, llvm::ArrayRef<int64_t> otherStrides, unsigned columnAxis,
                Visit&& visit) {
  Extents index(rows.rank(), 0);
  const int64_t columns = rows.shape[columnAxis];
  const int64_t count = columns == 0 ? 0 : rows.elementCount() / columns;
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    int64_t other = 0;
    for (unsigned axis = 0; axis < rows.rank(); ++axis) {
      offset += index[axis] * rows.strides[axis];
      other += index[axis] * otherStrides[axis];
    }
    visit(offset, other);
    for (unsigned axis = rows.rank(); axis-- > 0;) {
      if (axis == columnAxis)
        continue;
      if (++index[axis] != rows.shape[axis])
        break;
      index[axis] = 0;
    }
  }
}

void turn(float* row, llvm::ArrayRef<TurnedPair> pairs) {
  for (const TurnedPair& pair : pairs) {
    const float x = row[pair.low];
    const float y = row[pair.high];
    row[pair.low] = x * pair.cosine - y * pair.sine;
    row[pair.high] = x * pair.sine + y * pair.cosine;
  }
}

float load(const TensorView& rows, int64_t offset) {
  if (rows.element == ElementType::Float)
    return rows.as<float>()[offset];
  const uint16_t bits = rows.as<uint16_t>()[offset];
  return rows.element == ElementType::Float16 ? f16ToFloat(bits) : bf16ToFloat(bits);
}

void store(const TensorView& rows, int64_t offset, float value) {
  if (rows.element == ElementType::Float)
    rows.as<float>()[offset] = value;
  else
    rows.as<uint16_t>()[offset] =
        rows.element == ElementType::Float16 ? floatToF16(value) : floatToBf16(value);
}

} // namespace

bool canRotate(ElementType element) { return storageOf(element).has_value(); }

void rotateRows(const TensorView& rows, unsigned columnAxis, const ManifestRotation& rotation,
                int64_t positions) {
  assert(canRotate(rows.element) && rows.shape[columnAxis] % rotation.width == 0);
  const auto pairs = turnedPairs(rotation, rows.shape[columnAxis], positions);
  const int64_t step = rows.strides[columnAxis];
  forEachRow(rows, rows.strides, columnAxis, [&](int64_t offset, int64_t) {
    for (const TurnedPair& pair : pairs) {
      const float x = load(rows, offset + pair.low * step);
      const float y = load(rows, offset + pair.high * step);
      store(rows, offset + pair.low * step, x * pair.cosine - y * pair.sine);
      store(rows, offset + pair.high * step, x * pair.sine + y * pair.cosine);
    }
  });
}

void rotateQuantizedRows(const TensorView& codes, const TensorView& scales, unsigned columnAxis,
                         const ManifestRotation& rotation, int64_t positions) {
  assert(codes.element == ElementType::Int8 && scales.element == ElementType::Float);
  assert(scales.rank() == codes.rank() && scales.shape[columnAxis] == 1);
  const int64_t columns = codes.shape[columnAxis];
  const int64_t step = codes.strides[columnAxis];
  const auto pairs = turnedPairs(rotation, columns, positions);
  std::vector<float> row(static_cast<size_t>(columns));
  std::vector<int8_t> quantized(row.size());
  forEachRow(codes, scales.strides, columnAxis, [&](int64_t offset, int64_t scaleAt) {
    float& scale = scales.as<float>()[scaleAt];
    for (int64_t column = 0; column < columns; ++column)
      row[static_cast<size_t>(column)] =
          static_cast<float>(codes.as<int8_t>()[offset + column * step]) * scale;
    turn(row.data(), pairs);
    scale = simd::quantizeRow(row.data(), simd::FloatStorage::f32, row.size(), quantized.data());
    for (int64_t column = 0; column < columns; ++column)
      codes.as<int8_t>()[offset + column * step] = quantized[static_cast<size_t>(column)];
  });
}

void rotateFourBitRows(const TensorView& codes, const TensorView& scales, int64_t columns,
                       const ManifestRotation& rotation, int64_t positions) {
  assert(codes.element == ElementType::UInt8 && scales.element == ElementType::Float);
  const unsigned columnAxis = codes.rank() - 1;
  assert(codes.shape[columnAxis] == FourBitRow{columns}.bytes() && codes.strides[columnAxis] == 1);
  const auto pairs = turnedPairs(rotation, columns, positions);
  std::vector<float> row(static_cast<size_t>(columns));
  std::vector<int8_t> products(row.size());
  forEachRow(codes, scales.strides, columnAxis, [&](int64_t offset, int64_t scaleAt) {
    float& scale = scales.as<float>()[scaleAt];
    simd::unpackFourBitRows({codes.data + offset, 0, columns}, 1, products.data());
    for (size_t column = 0; column < row.size(); ++column)
      row[column] = static_cast<float>(products[column]) * scale;
    turn(row.data(), pairs);
    scale = simd::quantizeFourBitRow(row.data(), simd::FloatStorage::f32, columns,
                                     codes.as<uint8_t>() + offset);
  });
}

void moveRowsForward(const TensorView& tensor, unsigned sequenceAxis, int64_t first,
                     int64_t dropped, int64_t end) {
  // Copies of at most `dropped` rows do not overlap their destination.
  for (int64_t row = first + dropped; row < end; row += dropped) {
    const int64_t count = std::min(dropped, end - row);
    copyElements(sliceAxis(tensor, sequenceAxis, row, row + count),
                 sliceAxis(tensor, sequenceAxis, row - dropped, row - dropped + count));
  }
}

} // namespace kvopt::runtime
