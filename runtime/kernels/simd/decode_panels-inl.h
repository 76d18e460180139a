// Sums of weights times V of many queries over values that are in the second-level cache: columns
// in panels. A panel of a tile's values stays in the first-level cache, which has no room for the
// sums of all queries: these come and go once a tile, not once a turn of its rows.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_DECODE_PANELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_PANELS_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_PANELS_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_DECODE_PANELS_INL_H
#endif

#include "runtime/kernels/simd/attention_block.h"
#include "runtime/kernels/simd/decode_rows-inl.h"
#include "runtime/kernels/simd/decode_values-inl.h"
#include "runtime/kernels/simd/read_ahead.h"

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace kvopt::HWY_NAMESPACE {

/// `Vectors` vectors of columns from `column` on for all queries; with Tail, the last `tail`.
template <class Cache, int Vectors, bool Tail = false, class Ask>
void accumulatePanel(const AttentionBlock& block, const Rows<Cache>& values, int64_t tile,
                     KeyRange range, const Ask& ask, size_t column, size_t tail = 0) {
  forEachQueryBlock(block.queries, [&](auto queries, int64_t query) HWY_ATTR {
    accumulateBlock<Cache, decltype(queries)::value, Vectors, Tail>(block, values, tile, range,
                                                                    true, query, ask, column, tail);
  });
}

/// All columns. What the work with the values of the range is to bring is granted panel by panel.
template <class Cache, class Ask>
void accumulatePanels(const AttentionBlock& block, const Rows<Cache>& values, int64_t tile,
                      KeyRange range, ReadAhead& ahead, const Ask& ask) {
  constexpr int kCount = kVectors<4>;
  const size_t lanes = hn::Lanes(F32Tag());
  const auto keys = static_cast<size_t>(range.end - range.begin);
  const auto grant = [&](size_t column, size_t columns) {
    const size_t before = keys * column / values.width;
    const size_t with = keys * (column + columns) / values.width;
    ahead.grantValues(static_cast<int64_t>(with - before));
  };
  size_t column = 0;
  for (; column + kCount * lanes <= values.width; column += kCount * lanes) {
    grant(column, kCount * lanes);
    accumulatePanel<Cache, kCount>(block, values, tile, range, ask, column);
  }
  for (; column + lanes <= values.width; column += lanes) {
    grant(column, lanes);
    accumulatePanel<Cache, 1>(block, values, tile, range, ask, column);
  }
  if (const size_t tail = values.width - column; tail != 0) {
    grant(column, tail);
    accumulatePanel<Cache, 1, true>(block, values, tile, range, ask, column, tail);
  }
}

} // namespace kvopt::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
