// Codes with SIMD kernels use the functions of these kernels.
#include "runtime/memory/coded_row.h"

#include "runtime/simd/four_bit_rows.h"
#include "runtime/simd/quantize_row.h"
#include "support/half.h"

#include "llvm/ADT/SmallVector.h"

#include <cassert>

namespace kvopt::runtime {
using namespace ir;
using namespace simd;

namespace {

using FloatRow = llvm::SmallVector<float, 256>;

FloatRow floatsOf(const std::byte* row, FloatStorage storage, int64_t columns) {
  FloatRow floats(static_cast<size_t>(columns));
  if (storage == FloatStorage::f32) {
    std::copy_n(reinterpret_cast<const float*>(row), columns, floats.data());
    return floats;
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(row);
  for (size_t i = 0; i < floats.size(); ++i)
    floats[i] = storage == FloatStorage::f16 ? f16ToFloat(bits[i]) : bf16ToFloat(bits[i]);
  return floats;
}

} // namespace

float encodeRow(const RowCode& code, const std::byte* row, FloatStorage storage, int64_t columns,
                std::byte* codes) {
  if (&code == &int8Rows)
    return quantizeRow(row, storage, static_cast<size_t>(columns),
                       reinterpret_cast<int8_t*>(codes));
  if (&code == &fourBitRows)
    return quantizeFourBitRow(row, storage, columns, reinterpret_cast<uint8_t*>(codes));
  assert(code.encode && "other codes have functions of their own");
  return code.encode(floatsOf(row, storage, columns).data(), columns, codes);
}

void decodeRow(const RowCode& code, const std::byte* codes, int64_t columns, float* numbers) {
  if (code.decode)
    return code.decode(codes, columns, numbers);
  llvm::SmallVector<int8_t, 1024> products;
  const auto* bytes = reinterpret_cast<const int8_t*>(codes);
  if (&code == &fourBitRows) {
    products.resize(static_cast<size_t>(columns));
    unpackFourBitRows({codes, 0, columns}, 1, products.data());
    bytes = products.data();
  }
  for (int64_t i = 0; i < columns; ++i)
    numbers[i] = static_cast<float>(bytes[i]);
}

} // namespace kvopt::runtime
