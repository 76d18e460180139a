// Unpacking of rows of four-bit codes, done for every row that attention reads.
#include "runtime/simd/code_form.h"

#include <cassert>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/code_form.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Unpacks the codes of 16 bytes to 32 bytes.
HWY_INLINE void unpackSixteenBytes(const uint8_t* packed, int8_t* codes) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 16; ++i) {
    codes[2 * i] = static_cast<int8_t>((packed[i] & 15) - nibbleOffset);
    codes[2 * i + 1] = static_cast<int8_t>((packed[i] >> 4) - nibbleOffset);
  }
#else
  const hn::FixedTag<uint8_t, 16> u8;
  const hn::FixedTag<uint16_t, 8> u16;
  const auto bytes = hn::LoadU(u8, packed);
  const auto fifteen = hn::Set(u8, uint8_t{15});
  const auto offset = hn::Set(u8, uint8_t{nibbleOffset});
  const auto even = hn::And(bytes, fifteen);
  const auto odd = hn::And(hn::BitCast(u8, hn::ShiftRight<4>(hn::BitCast(u16, bytes))), fifteen);
  auto* to = reinterpret_cast<uint8_t*>(codes);
  hn::StoreU(hn::Sub(hn::InterleaveLower(u8, even, odd), offset), u8, to);
  hn::StoreU(hn::Sub(hn::InterleaveUpper(u8, even, odd), offset), u8, to + 16);
#endif
}

} // namespace

void unpackNibbleRowsOf(const FourBitRows& rows, int64_t count, int8_t* codes) {
  constexpr int64_t wholeColumns = 32;
  const int64_t vectored = rows.columns - rows.columns % wholeColumns;
  for (int64_t i = 0; i < count; ++i) {
    const auto* packed = reinterpret_cast<const uint8_t*>(rows.first + i * rows.stride);
    int8_t* to = codes + i * rows.columns;
    for (int64_t column = 0; column < vectored; column += wholeColumns)
      unpackSixteenBytes(packed + column / 2, to + column);
    for (int64_t column = vectored; column < rows.columns; ++column) {
      const int stored = column % 2 == 0 ? packed[column / 2] & 15 : packed[column / 2] >> 4;
      to[column] = static_cast<int8_t>(stored - nibbleOffset);
    }
  }
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(unpackNibbleRowsOf);

void unpackNibbleRows(const FourBitRows& rows, int64_t count, int8_t* codes) {
  HWY_DYNAMIC_DISPATCH(unpackNibbleRowsOf)(rows, count, codes);
}

void unpackCodeRows(CodeForm form, const FourBitRows& rows, int64_t count, int8_t* codes) {
  assert(form != CodeForm::bytes);
  if (form == CodeForm::nibbles)
    unpackNibbleRows(rows, count, codes);
  else
    unpackFourBitRows(rows, count, codes);
}

} // namespace kvopt::simd
#endif // HWY_ONCE
