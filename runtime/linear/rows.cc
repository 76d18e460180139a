// Few rows times [columns,inner] weights: dot products with four rows of W at a time.
#include "runtime/linear/float_product.h"

#include <cassert>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/linear/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/linear/prefetch-inl.h"
#include "runtime/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::linear::HWY_NAMESPACE {
using namespace simd;
using namespace simd::HWY_NAMESPACE;
namespace {

/// Number of values of k whose products are summed before they are added to the result.
constexpr size_t kBlockInner = 1024;

/// The same part of four rows of W.
template <class Storage> struct Quad {
  const typename Storage::Element *w0, *w1, *w2, *w3;
  size_t count;    ///< number of elements in the part
  size_t readable; ///< number of readable elements before the part, in W and in `a`
};

HWY_INLINE void addProducts(F32Vec a, F32Vec v0, F32Vec v1, F32Vec v2, F32Vec v3, F32Vec& s0,
                            F32Vec& s1, F32Vec& s2, F32Vec& s3) {
  s0 = hn::MulAdd(a, v0, s0);
  s1 = hn::MulAdd(a, v1, s1);
  s2 = hn::MulAdd(a, v2, s2);
  s3 = hn::MulAdd(a, v3, s3);
}

/// Dot products of `Rows` rows of activations with the four parts, stored in sums[row * 4 + part].
template <class Storage, int Rows, bool Ahead>
HWY_INLINE void dotQuad(const Quad<Storage>& q, const float* HWY_RESTRICT a, size_t aStride,
                        float* HWY_RESTRICT sums) {
  static_assert(Rows == 1 || Rows == 2 || Rows == 4);
  const F32Tag f32;
  const Storage storage;
  const size_t lanes = hn::Lanes(f32);
  const auto *w0 = q.w0, *w1 = q.w1, *w2 = q.w2, *w3 = q.w3;
  const float* const x0 = a;
  const float* const x1 = a + (Rows > 1 ? aStride : 0);
  const float* const x2 = a + (Rows > 2 ? 2 * aStride : 0);
  const float* const x3 = a + (Rows > 2 ? 3 * aStride : 0);
  auto a0 = hn::Zero(f32), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  auto c0 = a0, c1 = a0, c2 = a0, c3 = a0, d0 = a0, d1 = a0, d2 = a0, d3 = a0;
  constexpr size_t kAhead = kPrefetchBytes / sizeof(*w0);
  size_t k = 0;
  for (; k + lanes <= q.count; k += lanes) {
    if constexpr (Ahead && Rows == 1) {
      prefetchStraightAhead(w0 + k, k * sizeof(*w0));
      prefetchStraightAhead(w1 + k, k * sizeof(*w1));
      prefetchStraightAhead(w2 + k, k * sizeof(*w2));
      prefetchStraightAhead(w3 + k, k * sizeof(*w3));
    } else if constexpr (Ahead) {
      prefetchLine(w0 + k + kAhead);
      prefetchLine(w1 + k + kAhead);
      prefetchLine(w2 + k + kAhead);
      prefetchLine(w3 + k + kAhead);
    }
    const auto v0 = load(storage, w0 + k), v1 = load(storage, w1 + k);
    const auto v2 = load(storage, w2 + k), v3 = load(storage, w3 + k);
    addProducts(hn::LoadU(f32, x0 + k), v0, v1, v2, v3, a0, a1, a2, a3);
    if constexpr (Rows > 1)
      addProducts(hn::LoadU(f32, x1 + k), v0, v1, v2, v3, b0, b1, b2, b3);
    if constexpr (Rows > 2) {
      addProducts(hn::LoadU(f32, x2 + k), v0, v1, v2, v3, c0, c1, c2, c3);
      addProducts(hn::LoadU(f32, x3 + k), v0, v1, v2, v3, d0, d1, d2, d3);
    }
  }
  if (const size_t tail = q.count - k; tail != 0) {
    const size_t end = q.count, readable = q.readable + end;
    const auto v0 = loadLast<Storage>(w0 + end, tail, readable);
    const auto v1 = loadLast<Storage>(w1 + end, tail, readable);
    const auto v2 = loadLast<Storage>(w2 + end, tail, readable);
    const auto v3 = loadLast<Storage>(w3 + end, tail, readable);
    const auto x = [&](const float* row)
                       HWY_ATTR { return loadLast<F32Storage>(row + end, tail, readable); };
    addProducts(x(x0), v0, v1, v2, v3, a0, a1, a2, a3);
    if constexpr (Rows > 1)
      addProducts(x(x1), v0, v1, v2, v3, b0, b1, b2, b3);
    if constexpr (Rows > 2) {
      addProducts(x(x2), v0, v1, v2, v3, c0, c1, c2, c3);
      addProducts(x(x3), v0, v1, v2, v3, d0, d1, d2, d3);
    }
  }
  sumLanes4(a0, a1, a2, a3, sums);
  if constexpr (Rows > 1)
    sumLanes4(b0, b1, b2, b3, sums + 4);
  if constexpr (Rows > 2) {
    sumLanes4(c0, c1, c2, c3, sums + 8);
    sumLanes4(d0, d1, d2, d3, sums + 12);
  }
}

/// The first rows of activations also prefetch.
template <class Storage>
HWY_INLINE void dotQuads(const Quad<Storage>& q, const float* a, size_t aStride, size_t rows,
                         float* sums) {
  constexpr size_t kMost = kManyRegisters ? 4 : 2;
  size_t m = 0;
  if (kMost == 4 && rows >= 4)
    dotQuad<Storage, kMost, true>(q, a, aStride, sums), m = kMost;
  else if (rows >= 2)
    dotQuad<Storage, 2, true>(q, a, aStride, sums), m = 2;
  else
    dotQuad<Storage, 1, true>(q, a, aStride, sums), m = 1;
  for (; m + kMost <= rows; m += kMost)
    dotQuad<Storage, kMost, false>(q, a + m * aStride, aStride, sums + 4 * m);
  if (kMost == 4 && m + 2 <= rows) {
    dotQuad<Storage, 2, false>(q, a + m * aStride, aStride, sums + 4 * m);
    m += 2;
  }
  if (m < rows)
    dotQuad<Storage, 1, false>(q, a + m * aStride, aStride, sums + 4 * m);
}

/// Reads the range as four streams, each over a quarter of its rows.
template <class Storage> void multiplyRange(const FloatProduct& p, size_t begin, size_t end) {
  const size_t inner = static_cast<size_t>(p.inner);
  const size_t stride = static_cast<size_t>(p.weightStride);
  const size_t aStride = static_cast<size_t>(p.aStride);
  const size_t rows = static_cast<size_t>(p.rows);
  const size_t quarter = (end - begin + 3) / 4;
  const auto* weights = static_cast<const typename Storage::Element*>(p.weights);
  HWY_ALIGN float sums[4 * fewRows];
  for (size_t n = begin; n < begin + quarter; ++n) {
    const auto row = [&](size_t i) {
      return weights + (n + i * quarter < end ? n + i * quarter : n) * stride;
    };
    const Quad<Storage> whole = {row(0), row(1), row(2), row(3), inner, 0};
    for (size_t k = 0; k < inner; k += kBlockInner) {
      const Quad<Storage> part = {whole.w0 + k,
                                  whole.w1 + k,
                                  whole.w2 + k,
                                  whole.w3 + k,
                                  HWY_MIN(kBlockInner, inner - k),
                                  k};
      dotQuads(part, p.a + k, aStride, rows, sums);
      for (size_t i = 0; i < 4 && n + i * quarter < end; ++i)
        for (size_t m = 0; m < rows; ++m) {
          float& out = p.out[m * static_cast<size_t>(p.outStride) + n + i * quarter];
          out = k == 0 ? sums[4 * m + i] : out + sums[4 * m + i];
        }
    }
  }
}

} // namespace

void multiplyRows(const FloatProduct& p, int64_t begin, int64_t end) {
  const size_t from = static_cast<size_t>(begin), to = static_cast<size_t>(end);
  switch (p.storage) {
  case FloatStorage::f32:
    return multiplyRange<F32Storage>(p, from, to);
  case FloatStorage::f16:
    return multiplyRange<F16Storage>(p, from, to);
  case FloatStorage::bf16:
    return multiplyRange<Bf16Storage>(p, from, to);
  }
}

} // namespace kvopt::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::linear {
using namespace simd;

HWY_EXPORT(multiplyRows);

void multiplyRows(const FloatProduct& product, int64_t begin, int64_t end) {
  assert(product.rows <= fewRows && begin >= 0 && end <= product.columns);
  if (begin >= end || product.rows == 0)
    return;
  if (product.inner == 0) {
    for (int64_t m = 0; m < product.rows; ++m)
      for (int64_t n = begin; n < end; ++n)
        product.out[m * product.outStride + n] = 0.0f;
    return;
  }
  HWY_DYNAMIC_DISPATCH(multiplyRows)(product, begin, end);
}

} // namespace kvopt::linear
#endif // HWY_ONCE
