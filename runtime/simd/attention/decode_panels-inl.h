// Sums of weights times V for many queries, with values in the second-level cache: columns are
// processed in panels. A panel of a tile's values stays in the first-level cache, which has no room
// for the sums of all queries; these are loaded and stored once per tile instead of once per turn
// of its rows.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_DECODE_PANELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_PANELS_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_PANELS_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_DECODE_PANELS_INL_H
#endif

#include "runtime/simd/attention/attention_block.h"
#include "runtime/simd/attention/decode_rows-inl.h"
#include "runtime/simd/attention/decode_values-inl.h"
#include "runtime/simd/attention/read_ahead.h"

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

/// All columns for all queries. Prefetches for work with the values of the range are granted panel
/// by panel.
template <class Cache, class Ask>
void accumulatePanels(const AttentionBlock& block, const Rows<Cache>& values, int64_t tile,
                      KeyRange range, ReadAhead& ahead, const Ask& ask) {
  const auto keys = static_cast<size_t>(range.end - range.begin);
  forEachColumnRun<Cache, kVectors<4>>(
      values.width, [&](auto vectors, auto isTail, size_t column, size_t columns) HWY_ATTR {
        const size_t before = keys * column / values.width;
        const size_t with = keys * (column + columns) / values.width;
        ahead.grantValues(static_cast<int64_t>(with - before));
        forEachQueryBlock(block.queries, [&](auto queries, int64_t query) HWY_ATTR {
          accumulateBlock<Cache, decltype(queries)::value, decltype(vectors)::value,
                          decltype(isTail)::value>(block, values, tile, range, true, query, ask,
                                                   column, columns);
        });
      });
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
