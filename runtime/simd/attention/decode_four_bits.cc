// Decode attention over rows of four-bit codes.
#include "runtime/simd/attention/decode_keys.h"
#include "runtime/simd/attention/decode_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/attention/decode_four_bits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/simd/attention/decode_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

void attendFourBits(const AttentionBlock& block, KeyRange range, const LocatedKeys& following) {
  if constexpr (kReadsFourBitRows)
    attendRows<FourBitStorage>(block, block.allRows(), range, following);
  else
    HWY_ABORT("these instructions do not read four-bit rows");
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(attendFourBits);
void attendFourBitKeys(const AttentionBlock& block, KeyRange range, const LocatedKeys& following) {
  HWY_DYNAMIC_DISPATCH(attendFourBits)(block, range, following);
}

} // namespace kvopt::simd
#endif // HWY_ONCE
