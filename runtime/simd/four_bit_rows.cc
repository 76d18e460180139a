// Packing is plain C++, because it happens once per token. Unpacking happens for every row that
// attention reads: a group's sixteen products of code and multiplier are a lookup table for bytes.
#include "runtime/simd/four_bit_rows.h"

#include "runtime/simd/four_bit_products.h"
#include "support/half.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/four_bit_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Unpacks a group of 32 columns.
HWY_INLINE void unpackWholeGroup(const uint8_t* packed, int8_t* products) {
  const int8_t* table = fourBitCodes.of(packed[FourBitRow::mostGroupColumns / 2]);
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 16; ++i) {
    products[i] = table[packed[i] & 15];
    products[i + 16] = table[packed[i] >> 4];
  }
#else
  const hn::FixedTag<uint8_t, 16> u8;
  const hn::FixedTag<uint16_t, 8> u16;
  const auto products16 = hn::Load(u8, reinterpret_cast<const uint8_t*>(table));
  const auto bytes = hn::LoadU(u8, packed);
  const auto low = hn::Set(u8, uint8_t{15});
  const auto upper = hn::And(hn::BitCast(u8, hn::ShiftRight<4>(hn::BitCast(u16, bytes))), low);
  auto* to = reinterpret_cast<uint8_t*>(products);
  hn::StoreU(hn::TableLookupBytes(products16, hn::And(bytes, low)), u8, to);
  hn::StoreU(hn::TableLookupBytes(products16, upper), u8, to + 16);
#endif
}

void unpackGroups(const FourBitRows& rows, int64_t count, int8_t* products) {
  const FourBitRow row{rows.columns};
  const int64_t half = row.halfGroup();
  const bool isWhole = 2 * half == FourBitRow::mostGroupColumns;
  for (int64_t i = 0; i < count; ++i) {
    const auto* packed = reinterpret_cast<const uint8_t*>(rows.first + i * rows.stride);
    int8_t* to = products + i * rows.columns;
    for (int64_t left = rows.columns; left > 0; left -= 2 * half) {
      if (isWhole && left >= 2 * half) {
        unpackWholeGroup(packed, to);
      } else {
        const int8_t* table = fourBitCodes.of(packed[half]);
        for (int64_t column = 0; column < std::min(half, left); ++column)
          to[column] = table[packed[column] & 15];
        for (int64_t column = half; column < std::min(2 * half, left); ++column)
          to[column] = table[packed[column - half] >> 4];
      }
      packed += half + 1;
      to += 2 * half;
    }
  }
}

} // namespace

void unpackFourBitRowsOf(const FourBitRows& rows, int64_t count, int8_t* products) {
  unpackGroups(rows, count, products);
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(unpackFourBitRowsOf);

void unpackFourBitRows(const FourBitRows& rows, int64_t count, int8_t* products) {
  HWY_DYNAMIC_DISPATCH(unpackFourBitRowsOf)(rows, count, products);
}

namespace {

float storedFloat(const void* row, FloatStorage storage, int64_t at) {
  if (storage == FloatStorage::f32)
    return static_cast<const float*>(row)[at];
  const uint16_t bits = static_cast<const uint16_t*>(row)[at];
  return storage == FloatStorage::f16 ? f16ToFloat(bits) : bf16ToFloat(bits);
}

/// Packs the codes of one group, starting at column `first`; without numbers, all codes are zero.
void packGroup(const void* row, FloatStorage storage, int64_t first, const FourBitRow& form,
               float scale, bool noNumbers, uint8_t* packed) {
  const int64_t half = form.halfGroup();
  const int64_t end = std::min(first + 2 * half, form.columns);
  float largest = 0;
  if (!noNumbers)
    for (int64_t d = first; d < end; ++d)
      largest = std::max(largest, std::fabs(storedFloat(row, storage, d)));
  const float divisor = scale == 0.0f ? 1.0f : scale;
  const float whole = divisor * static_cast<float>(FourBitRow::largestCode);
  const float multiplier = std::clamp(std::ceil(largest / whole), 1.0f,
                                      static_cast<float>(FourBitRow::largestMultiplier));
  const float step = divisor * multiplier;
  std::fill_n(packed, half, uint8_t{FourBitRow::codeOffset * 0x11});
  constexpr auto limit = static_cast<float>(FourBitRow::largestCode);
  for (int64_t d = first; d < end && !noNumbers; ++d) {
    const float code =
        std::clamp(std::nearbyint(storedFloat(row, storage, d) / step), -limit, limit);
    const auto stored = static_cast<uint8_t>(static_cast<int>(code) + FourBitRow::codeOffset);
    uint8_t& byte = packed[(d - first) % half];
    byte = d - first < half ? static_cast<uint8_t>((byte & 0xF0) | stored)
                            : static_cast<uint8_t>((byte & 0x0F) | stored << 4);
  }
  packed[half] = static_cast<uint8_t>(multiplier);
}

} // namespace

float quantizeFourBitRow(const void* row, FloatStorage storage, int64_t columns, uint8_t* packed) {
  constexpr float largestProduct = FourBitRow::largestCode * FourBitRow::largestMultiplier;
  const FourBitRow form{columns};
  float largest = 0;
  bool isFinite = true;
  for (int64_t d = 0; d < columns; ++d) {
    const float value = storedFloat(row, storage, d);
    isFinite &= std::isfinite(value);
    largest = std::max(largest, std::fabs(value));
  }
  const float scale = isFinite ? largest / largestProduct : 0.0f;
  for (int64_t group = 0; group < form.groups(); ++group)
    packGroup(row, storage, group * 2 * form.halfGroup(), form, scale, !isFinite,
              packed + group * form.groupBytes());
  return isFinite ? scale : std::numeric_limits<float>::quiet_NaN();
}

} // namespace kvopt::simd
#endif // HWY_ONCE
