// Keys are transposed so that a vector holds four adjacent codes of 16 keys. One operand holds a
// query's digits of the same four columns for all of them, and sums of different keys are in
// separate lanes, so that no sums across lanes are needed.
#include "runtime/simd/attention/code_products.h"

#include "runtime/simd/four_bit_products.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#if defined(__x86_64__)
#if defined(__clang__)
#include <immintrin.h>
#else
// g++ 12 warns about values that its own header leaves undefined on purpose (its bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif
#endif

namespace kvopt::simd {

namespace {

/// Number of keys in a vector.
constexpr int64_t groupKeys = 16;
static_assert(kAttentionTileKeys % groupKeys == 0);

} // namespace

#if defined(__x86_64__)

// One instruction set, which is checked before use: Highway 1.0 has no products of bytes.
#define KVOPT_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define KVOPT_VNNI_INLINE KVOPT_VNNI inline __attribute__((always_inline))

bool hasByteProducts() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vnni");
  return has;
}

namespace {

/// Up to four rows, which are multiplied together. Digit i of four adjacent columns is in one word;
/// the words of all rows are adjacent.
struct DigitRows {
  /// The block of 4, 2 or 1 rows that begins with row `first`.
  DigitRows(const QueryDigits& all, int64_t first)
      : width(all.width), count(all.rows - first >= 4   ? 4
                                : all.rows - first >= 2 ? 2
                                                        : 1),
        digits(all.memory + first * QueryDigits::words(width)),
        starts(digits + 3 * count * columns()), steps(reinterpret_cast<float*>(starts + 3 * count)),
        powers(steps + count) {}

  int64_t columns() const { return (width + 3) / 4; }

  int64_t width;
  int64_t count;
  int32_t* digits; ///< [columns, count, 3], four digits in each
  int32_t* starts; ///< [count, 3], -128 times the sum of the row's digits
  float* steps;  ///< [count], multiplied by the row's power of two, because a step may be too small
                 ///< for f32
  float* powers; ///< [count], inverse of that power
};

/// Number of blocks for `rows` rows.
int64_t blocksOf(int64_t rows) { return rows / 4 + rows % 4 / 2 + rows % 2; }

/// Largest number of a row after scaling: leaves room for rounding within three digits.
constexpr float largestNumber = 8355000.0f;
/// Rows with smaller maxima are multiplied by the power of two.
constexpr float smallestMaximum = 0x1p-60f;
constexpr float powerOfSmall = 0x1p100f;

constexpr int64_t vectorFloats = 16;

KVOPT_VNNI_INLINE __mmask16 firstLanes(int64_t count) {
  return static_cast<__mmask16>(count >= vectorFloats ? 0xFFFF : (1u << count) - 1);
}

/// 16 numbers, starting at column `d`; zeros after the last one.
KVOPT_VNNI_INLINE __m512 packedVector(const float* row, int64_t distance, int64_t width,
                                      int64_t d) {
  const float* vector = row + d / vectorFloats * distance;
  const int64_t count = std::min(width - d, vectorFloats);
  return _mm512_maskz_loadu_ps(firstLanes(count), vector + (vectorFloats - count));
}

/// Extracts the lowest digit of each number and removes it.
KVOPT_VNNI_INLINE __m512i nextDigit(__m512i& numbers) {
  const __m512i digit = _mm512_srai_epi32(_mm512_slli_epi32(numbers, 24), 24);
  numbers = _mm512_srai_epi32(_mm512_sub_epi32(numbers, digit), 8);
  return digit;
}

/// Interleaves words of 16 columns of every fourth row: to[i] receives columns 4 i to 4 i + 3 of
/// all rows.
KVOPT_VNNI_INLINE void interleave(__m512i a, __m512i b, __m512i c, __m512i d, __m512i* to) {
  const __m512i abLow = _mm512_unpacklo_epi32(a, b), abHigh = _mm512_unpackhi_epi32(a, b);
  const __m512i cdLow = _mm512_unpacklo_epi32(c, d), cdHigh = _mm512_unpackhi_epi32(c, d);
  _mm512_store_si512(to, _mm512_unpacklo_epi64(abLow, cdLow));
  _mm512_store_si512(to + 1, _mm512_unpackhi_epi64(abLow, cdLow));
  _mm512_store_si512(to + 2, _mm512_unpacklo_epi64(abHigh, cdHigh));
  _mm512_store_si512(to + 3, _mm512_unpackhi_epi64(abHigh, cdHigh));
}

/// 16 columns of 16 rows, starting at `column`: to[i] receives columns 4 i to 4 i + 3 of each, plus
/// 128, which makes codes unsigned. With Tail, only `tail` columns exist; later ones count as 0.
template <bool Tail>
KVOPT_VNNI_INLINE void turn(const int8_t* const* rows, int64_t column, __m512i* to,
                            int64_t tail = 0) {
  const __m512i bias = _mm512_set1_epi8(-128);
  // Every fourth row, starting at row `first`.
  const auto quarters = [&](int64_t first) __attribute__((always_inline)) KVOPT_VNNI {
    const auto part = [&](int64_t row) __attribute__((always_inline)) KVOPT_VNNI {
      const int8_t* from = rows[first + row] + column;
      return Tail ? _mm_maskz_loadu_epi8(firstLanes(tail), from)
                  : _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    };
    __m512i all = _mm512_castsi128_si512(part(0));
    all = _mm512_mask_broadcast_i32x4(all, 0x00F0, part(4));
    all = _mm512_mask_broadcast_i32x4(all, 0x0F00, part(8));
    all = _mm512_mask_broadcast_i32x4(all, 0xF000, part(12));
    return _mm512_xor_si512(all, bias);
  };
  interleave(quarters(0), quarters(1), quarters(2), quarters(3), to);
}

/// Products with multipliers, plus 128.
constexpr FourBitProducts<uint8_t> turnedProducts = makeFourBitProducts<uint8_t>(0x80);

/// The 32 columns of a group of 16 rows of four-bit codes, which begins at byte `at` of each row:
/// first 16 columns and then 16 more, in the format of turn().
KVOPT_VNNI_INLINE void turnGroup(const int8_t* const* rows, int64_t at, __m512i* to) {
  const __m512i lowest = _mm512_set1_epi8(15);
  __m512i low[4], high[4];
  for (int first = 0; first < 4; ++first) {
    const auto codes = [&](int row) __attribute__((always_inline)) KVOPT_VNNI {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[first + row] + at));
    };
    const auto products = [&](int row) __attribute__((always_inline)) KVOPT_VNNI {
      const auto multiplier = static_cast<uint8_t>(rows[first + row][at + 16]);
      return _mm_load_si128(reinterpret_cast<const __m128i*>(turnedProducts.of(multiplier)));
    };
    __m512i bytes = _mm512_castsi128_si512(codes(0));
    __m512i table = _mm512_castsi128_si512(products(0));
    bytes = _mm512_mask_broadcast_i32x4(bytes, 0x00F0, codes(4));
    table = _mm512_mask_broadcast_i32x4(table, 0x00F0, products(4));
    bytes = _mm512_mask_broadcast_i32x4(bytes, 0x0F00, codes(8));
    table = _mm512_mask_broadcast_i32x4(table, 0x0F00, products(8));
    bytes = _mm512_mask_broadcast_i32x4(bytes, 0xF000, codes(12));
    table = _mm512_mask_broadcast_i32x4(table, 0xF000, products(12));
    low[first] = _mm512_shuffle_epi8(table, _mm512_and_si512(bytes, lowest));
    high[first] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(bytes, 4), lowest));
  }
  interleave(low[0], low[1], low[2], low[3], to);
  interleave(high[0], high[1], high[2], high[3], to + 4);
}

KVOPT_VNNI_INLINE void turnFourBitRows(const int8_t* const* rows, int64_t width, __m512i* to) {
  for (int64_t group = 0; group < width / FourBitRow::mostGroupColumns; ++group)
    turnGroup(rows, group * FourBitRow{FourBitRow::mostGroupColumns}.bytes(), to + group * 8);
}

KVOPT_VNNI_INLINE void turnRows(const int8_t* const* rows, int64_t width, __m512i* to) {
  int64_t column = 0;
  for (; column + 16 <= width; column += 16)
    turn<false>(rows, column, to + column / 4);
  if (column < width)
    turn<true>(rows, column, to + column / 4, width - column);
}

/// Sums of one row with 16 keys, for each digit.
struct DigitSums {
  __m512i s0, s1, s2;
};

KVOPT_VNNI_INLINE DigitSums startSums(const int32_t* starts) {
  return {_mm512_set1_epi32(starts[0]), _mm512_set1_epi32(starts[1]), _mm512_set1_epi32(starts[2])};
}

/// Adds, in each lane, the products of four codes with the digits of one word. In assembly, because
/// with an intrinsic g++ copies every sum before and after it, and loads the word separately.
KVOPT_VNNI_INLINE void addProducts(__m512i codes, const int32_t& digits, __m512i& sum) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(digits));
}

KVOPT_VNNI_INLINE void addProducts(__m512i codes, const int32_t* digits, DigitSums& sums) {
  addProducts(codes, digits[0], sums.s0);
  addProducts(codes, digits[1], sums.s1);
  addProducts(codes, digits[2], sums.s2);
}

KVOPT_VNNI_INLINE void storeSums(const DigitSums& sums, const DigitRows& rows, int64_t row,
                                 float* scores) {
  __m512 total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums.s1), _mm512_set1_ps(256.0f),
                                 _mm512_cvtepi32_ps(sums.s0));
  total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums.s2), _mm512_set1_ps(65536.0f), total);
  total = _mm512_mul_ps(total, _mm512_set1_ps(rows.steps[row]));
  _mm512_storeu_ps(scores + row * kAttentionTileKeys,
                   _mm512_mul_ps(total, _mm512_set1_ps(rows.powers[row])));
}

/// `Count` rows with 16 keys. Prefetches a line every `every` columns.
template <int Count>
KVOPT_VNNI void scoreGroup(const __m512i* codes, const DigitRows& rows, int64_t every,
                           ReadAhead& ahead, float* scores) {
  const int64_t columns = rows.columns();
  const int32_t* digits = rows.digits;
  DigitSums a = startSums(rows.starts), b = a, c = a, d = a;
  if constexpr (Count > 1)
    b = startSums(rows.starts + 3);
  if constexpr (Count > 2) {
    c = startSums(rows.starts + 6);
    d = startSums(rows.starts + 9);
  }
  ReadAhead::Cursor cursor(ahead);
  int64_t until = 1;
  for (int64_t column = 0; column < columns; ++column, digits += 3 * Count) {
    if (--until == 0) {
      cursor.ask(1);
      until = every;
    }
    const __m512i four = _mm512_load_si512(codes + column);
    addProducts(four, digits, a);
    if constexpr (Count > 1)
      addProducts(four, digits + 3, b);
    if constexpr (Count > 2) {
      addProducts(four, digits + 6, c);
      addProducts(four, digits + 9, d);
    }
  }
  storeSums(a, rows, 0, scores);
  if constexpr (Count > 1)
    storeSums(b, rows, 1, scores);
  if constexpr (Count > 2) {
    storeSums(c, rows, 2, scores);
    storeSums(d, rows, 3, scores);
  }
}

} // namespace

KVOPT_VNNI bool writeDigits(const float* values, int64_t distance, const QueryDigits& digits,
                            int64_t row) {
  assert(hasByteProducts() && row < digits.rows);
  assert(digits.width > 0 && digits.width <= mostCodeColumns);
  const int64_t width = digits.width;
  __m512 largest = _mm512_setzero_ps();
  unsigned isOdd = 0;
  for (int64_t d = 0; d < width; d += vectorFloats) {
    const __m512 magnitude = _mm512_abs_ps(packedVector(values, distance, width, d));
    isOdd |= _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(INFINITY), _CMP_NLT_UQ);
    largest = _mm512_max_ps(largest, magnitude);
  }
  const float maximum = _mm512_reduce_max_ps(largest);
  if (isOdd != 0)
    return false;
  int64_t first = 0;
  while (first + DigitRows(digits, first).count <= row)
    first += DigitRows(digits, first).count;
  const DigitRows rows(digits, first);
  const int64_t index = row - first;
  const float power = maximum < smallestMaximum ? powerOfSmall : 1.0f;
  rows.steps[index] = maximum * power / largestNumber;
  rows.powers[index] = 1.0f / power;
  const __m512 factor = _mm512_set1_ps(power);
  const __m512 divisor = _mm512_set1_ps(maximum == 0 ? 1.0f : rows.steps[index]);
  __m512i sums[3] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  for (int64_t d = 0; d < width; d += vectorFloats) {
    const __m512 scaled = _mm512_mul_ps(packedVector(values, distance, width, d), factor);
    __m512i numbers = _mm512_cvtps_epi32(_mm512_div_ps(scaled, divisor));
    for (int64_t i = 0; i < 3; ++i) {
      const __m512i digit = nextDigit(numbers);
      sums[i] = _mm512_add_epi32(sums[i], digit);
      alignas(16) int32_t words[4];
      _mm_store_si128(reinterpret_cast<__m128i*>(words), _mm512_cvtepi32_epi8(digit));
      for (int64_t word = 0; word < 4 && d / 4 + word < rows.columns(); ++word)
        rows.digits[((d / 4 + word) * rows.count + index) * 3 + i] = words[word];
    }
  }
  for (int64_t i = 0; i < 3; ++i)
    rows.starts[index * 3 + i] = -128 * _mm512_reduce_add_epi32(sums[i]);
  return true;
}

KVOPT_VNNI void scoreCodes(const CodeKeys& keys, int64_t tile, KeyRange range,
                           const QueryDigits& digits, ReadAhead& ahead, float* scores) {
  assert(hasByteProducts());
  assert(!keys.haveFourBits || digits.width % FourBitRow::mostGroupColumns == 0);
  assert(range.begin >= tile && range.begin < range.end && range.end <= tile + kAttentionTileKeys);
  const int64_t blocks = blocksOf(digits.rows);
  __m512i codes[mostCodeColumns / 4];
  ahead.grantKeys(range.end - range.begin);
  int64_t key = range.begin - (range.begin - tile) % groupKeys;
  for (; key < range.end; key += groupKeys) {
    const int8_t* rows[groupKeys];
    for (int64_t i = 0; i < groupKeys; ++i)
      rows[i] = keys.base + std::clamp(key + i, range.begin, range.end - 1) * keys.stride;
    if (keys.haveFourBits)
      turnFourBitRows(rows, digits.width, codes);
    else
      turnRows(rows, digits.width, codes);
    for (int64_t row = 0; row < digits.rows;) {
      const DigitRows block(digits, row);
      float* to = scores + row * kAttentionTileKeys + (key - tile);
      if (block.count == 4)
        scoreGroup<4>(codes, block, blocks, ahead, to);
      else if (block.count == 2)
        scoreGroup<2>(codes, block, blocks, ahead, to);
      else
        scoreGroup<1>(codes, block, blocks, ahead, to);
      row += block.count;
    }
  }
}

#else

bool hasByteProducts() { return false; }
bool writeDigits(const float*, int64_t, const QueryDigits&, int64_t) { return false; }
void scoreCodes(const CodeKeys&, int64_t, KeyRange, const QueryDigits&, ReadAhead&, float*) {}

#endif

} // namespace kvopt::simd
