// Decode attention over rows of one type: sequentially or in turns, in one run or in several.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_DECODE_KEYS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_KEYS_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_DECODE_KEYS_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_DECODE_KEYS_INL_H
#endif

#include "runtime/simd/attention/attention_block.h"
#include "runtime/simd/attention/decode_order.h"
#include "runtime/simd/attention/decode_rows-inl.h"
#include "runtime/simd/attention/decode_straight-inl.h"
#include "runtime/simd/attention/decode_turns-inl.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

/// `following` is read after `range`.
template <class Cache>
void attendRows(const AttentionBlock& block, const KeyValueRows& rows, KeyRange range,
                const LocatedKeys& following) {
  const Rows<Cache> keys(rows.key, rows.keyStride, block.view.keyWidth);
  const Rows<Cache> values(rows.value, rows.valueStride, block.view.valueWidth);
  if (decodesStraight(block.view, kHas512Bits))
    attendStraight(block, keys, values, range);
  else
    attendInTurns(block, keys, values, range, following);
}

template <class Cache>
void attendKeys(const AttentionBlock& block, KeyRange range, const LocatedKeys& following) {
  if (!block.view.isGathered())
    return attendRows<Cache>(block, block.allRows(), range, following);
  while (range.begin < range.end) {
    const auto [rows, end] = block.nextRows(range);
    const KeyRange rest{end, range.end};
    attendRows<Cache>(block, rows, {range.begin, end},
                      rest.begin < rest.end ? block.firstKeys(rest) : following);
    range.begin = end;
  }
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
