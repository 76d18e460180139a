// Rotation and movement of rows, one at a time.
#include "runtime/cache/rotate_rows.h"

#include "runtime/memory/buffer.h"
#include "runtime/memory/coded_row.h"
#include "runtime/memory/element_storage.h"
#include "support/half.h"

#include <cmath>
#include <cstring>
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

void rotateCodedRows(const TensorView& codes, const TensorView& scales, unsigned columnAxis,
                     int64_t columns, const ManifestRotation& rotation, int64_t positions) {
  const RowCode* code = rowCodeOf(codes.element);
  assert(code && scales.element == ElementType::Float && scales.rank() == codes.rank());
  assert(codes.shape[columnAxis] == code->elementsOf(columns) && scales.shape[columnAxis] == 1);
  const auto bytes = static_cast<size_t>(*byteWidth(codes.element));
  const int64_t step = codes.strides[columnAxis] * static_cast<int64_t>(bytes);
  const auto pairs = turnedPairs(rotation, columns, positions);
  std::vector<float> row(static_cast<size_t>(columns));
  std::vector<std::byte> stored(static_cast<size_t>(codes.shape[columnAxis]) * bytes);
  forEachRow(codes, scales.strides, columnAxis, [&](int64_t offset, int64_t scaleAt) {
    float& scale = scales.as<float>()[scaleAt];
    std::byte* first = codes.data + offset * static_cast<int64_t>(bytes);
    const auto copy = [&](auto&& visit) {
      for (int64_t i = 0; i < codes.shape[columnAxis]; ++i)
        visit(first + i * step, stored.data() + static_cast<size_t>(i) * bytes);
    };
    copy([&](const std::byte* from, std::byte* to) { std::memcpy(to, from, bytes); });
    decodeRow(*code, stored.data(), columns, row.data());
    for (float& number : row)
      number *= scale;
    turn(row.data(), pairs);
    scale = encodeRow(*code, reinterpret_cast<const std::byte*>(row.data()),
                      simd::FloatStorage::f32, columns, stored.data());
    copy([&](std::byte* to, const std::byte* from) { std::memcpy(to, from, bytes); });
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
