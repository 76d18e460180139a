// Decode attention over rows of 16-bit floats.
#include "runtime/simd/attention/decode_keys.h"
#include "runtime/simd/attention/decode_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/attention/decode_f16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/simd/attention/decode_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

void attendF16(const AttentionBlock& block, KeyRange range, const LocatedKeys& following) {
  attendKeys<F16Storage>(block, range, following);
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(attendF16);
void attendF16Keys(const AttentionBlock& block, KeyRange range, const LocatedKeys& following) {
  HWY_DYNAMIC_DISPATCH(attendF16)(block, range, following);
}

} // namespace kvopt::simd
#endif // HWY_ONCE
