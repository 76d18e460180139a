// Plain reads and multiply-adds with Google Highway.
#include "bench/machine.h"

#include "runtime/simd/prefetch.h"

#include <cstdint>

// Highway compiles this file once per SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/machine.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvopt::HWY_NAMESPACE {
using namespace simd;
namespace hn = hwy::HWY_NAMESPACE;

unsigned long long readAll(const void* data, size_t bytes) {
  const hn::ScalableTag<uint64_t> tag;
  const size_t lanes = hn::Lanes(tag);
  const size_t step = 64 / sizeof(uint64_t);
  const size_t quarter = bytes / 4 / 64 * step;
  const uint64_t* s0 = static_cast<const uint64_t*>(data);
  const uint64_t *s1 = s0 + quarter, *s2 = s1 + quarter, *s3 = s2 + quarter;
  auto a = hn::Zero(tag), b = a, c = a, d = a;
  for (size_t i = 0; i < quarter; i += step) {
    prefetchLine(s0 + i + 128);
    prefetchLine(s1 + i + 128);
    prefetchLine(s2 + i + 128);
    prefetchLine(s3 + i + 128);
    for (size_t j = 0; j < step; j += lanes) {
      a = hn::Or(a, hn::LoadU(tag, s0 + i + j));
      b = hn::Or(b, hn::LoadU(tag, s1 + i + j));
      c = hn::Or(c, hn::LoadU(tag, s2 + i + j));
      d = hn::Or(d, hn::LoadU(tag, s3 + i + j));
    }
  }
  const auto all = hn::Or(hn::Or(a, b), hn::Or(c, d));
  HWY_ALIGN uint64_t buffer[64];
  hn::Store(all, tag, buffer);
  unsigned long long result = 0;
  for (size_t lane = 0; lane < lanes; ++lane)
    result |= buffer[lane];
  return result;
}

double multiplyAdds(size_t rounds, float& sink) {
  const hn::ScalableTag<float> tag;
  const auto x = hn::Set(tag, sink);
  // All start differently, because compilers compute equal chains once.
  auto a = x, b = hn::Add(a, x), c = hn::Add(b, x), d = hn::Add(c, x), e = hn::Add(d, x),
       f = hn::Add(e, x), g = hn::Add(f, x), h = hn::Add(g, x);
  for (size_t i = 0; i < rounds * 128; ++i) {
    a = hn::MulAdd(a, x, x);
    b = hn::MulAdd(b, x, x);
    c = hn::MulAdd(c, x, x);
    d = hn::MulAdd(d, x, x);
    e = hn::MulAdd(e, x, x);
    f = hn::MulAdd(f, x, x);
    g = hn::MulAdd(g, x, x);
    h = hn::MulAdd(h, x, x);
  }
  const auto all =
      hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, d)), hn::Add(hn::Add(e, f), hn::Add(g, h)));
  sink = hn::GetLane(hn::SumOfLanes(tag, all));
  return static_cast<double>(rounds) * 1024 * 2 * static_cast<double>(hn::Lanes(tag));
}

} // namespace kvopt::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt {
using namespace simd;

HWY_EXPORT(readAll);
HWY_EXPORT(multiplyAdds);

unsigned long long readAll(const void* data, size_t bytes) {
  return HWY_DYNAMIC_DISPATCH(readAll)(data, bytes);
}

double multiplyAdds(size_t rounds, float& sink) {
  return HWY_DYNAMIC_DISPATCH(multiplyAdds)(rounds, sink);
}

} // namespace kvopt
#endif // HWY_ONCE
