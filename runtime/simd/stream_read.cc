// Four streams keep more lines of memory in flight than one core's prefetcher does for one.
#include "runtime/simd/stream_read.h"

#include <cstring>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/stream_read.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kMaxWords = 8;

uint64_t streamRead(const std::byte* data, size_t bytes) {
  const hn::CappedTag<uint64_t, kMaxWords> words;
  const size_t width = hn::Lanes(words) * sizeof(uint64_t);
  const size_t streamBytes = bytes / 4 / width * width;
  auto at = [&](size_t stream, size_t offset) {
    return hn::LoadU(words,
                     reinterpret_cast<const uint64_t*>(data + stream * streamBytes + offset));
  };
  auto a = hn::Zero(words);
  auto b = hn::Zero(words);
  auto c = hn::Zero(words);
  auto d = hn::Zero(words);
  for (size_t offset = 0; offset < streamBytes; offset += width) {
    a = hn::Xor(a, at(0, offset));
    b = hn::Xor(b, at(1, offset));
    c = hn::Xor(c, at(2, offset));
    d = hn::Xor(d, at(3, offset));
  }
  HWY_ALIGN uint64_t lanes[kMaxWords];
  hn::Store(hn::Xor(hn::Xor(a, b), hn::Xor(c, d)), words, lanes);
  uint64_t folded = 0;
  for (size_t lane = 0; lane < hn::Lanes(words); ++lane)
    folded ^= lanes[lane];
  for (size_t i = 4 * streamBytes; i < bytes; ++i)
    folded ^= static_cast<uint64_t>(data[i]);
  return folded;
}

int64_t compiledTarget() { return HWY_TARGET; }

} // namespace
} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(streamRead);
HWY_EXPORT(compiledTarget);

uint64_t streamRead(const std::byte* data, size_t bytes) {
  return HWY_DYNAMIC_DISPATCH(streamRead)(data, bytes);
}

std::string_view simdTarget() { return hwy::TargetName(HWY_DYNAMIC_DISPATCH(compiledTarget)()); }

} // namespace kvopt::simd
#endif // HWY_ONCE
