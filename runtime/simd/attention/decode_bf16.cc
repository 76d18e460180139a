// Decode attention over rows of bfloat16.
#include "runtime/simd/attention/decode_keys.h"
#include "runtime/simd/attention/decode_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/attention/decode_bf16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/simd/attention/decode_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

void attendBf16(const AttentionBlock& block, KeyRange range, const LocatedKeys& following) {
  attendKeys<Bf16Storage>(block, range, following);
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(attendBf16);
void attendBf16Keys(const AttentionBlock& block, KeyRange range, const LocatedKeys& following) {
  HWY_DYNAMIC_DISPATCH(attendBf16)(block, range, following);
}

} // namespace kvopt::simd
#endif // HWY_ONCE
