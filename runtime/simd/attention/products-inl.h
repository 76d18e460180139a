// Both products of attention in register blocks: Q K^T with keys in rows, and a product whose right
// operand has contiguous columns (weights times V, and Q K^T with a transposed K).
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_PRODUCTS_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_PRODUCTS_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_PRODUCTS_INL_H
#endif

#include "runtime/simd/vector-inl.h"

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

/// A packed row: its elements as f32 in ceil(width / lanes) vectors, the last one right-aligned as
/// by loadLast. The vectors are consecutive, or separated by `between` vectors of other rows.
template <class Storage>
void packRow(const typename Storage::Element* row, size_t width, float* packed,
             size_t between = 0) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  const size_t tail = width % lanes;
  for (size_t d = 0; d + lanes <= width; d += lanes, packed += lanes * (1 + between))
    hn::StoreU(load(Storage(), row + d), f32, packed);
  if (tail != 0)
    hn::StoreU(loadLast<Storage>(row + width, tail, width), f32, packed);
}

/// Scores of `keys` <= 4 keys, starting at k0 with the distance of a stride, for one or two packed
/// queries. Every dot product is one chain of multiply-adds per lane, independent of the blocking.
template <class Cache, int Queries>
HWY_INLINE void scoreKeys(const typename Cache::Element* k0, size_t stride, size_t keys,
                          size_t width, const float* HWY_RESTRICT query, size_t queryStride,
                          float* HWY_RESTRICT scores, size_t scoreStride) {
  const F32Tag f32;
  const Cache cache;
  const size_t lanes = hn::Lanes(f32);
  const auto* k1 = k0 + (keys > 1 ? stride : 0);
  const auto* k2 = k0 + (keys > 2 ? 2 * stride : 0);
  const auto* k3 = k0 + (keys > 3 ? 3 * stride : 0);
  auto a0 = hn::Zero(f32), a1 = a0, a2 = a0, a3 = a0;
  auto b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  for (size_t d = 0; d < width; d += lanes) {
    auto v0 = a0, v1 = a0, v2 = a0, v3 = a0;
    if (const size_t tail = width - d; HWY_LIKELY(tail >= lanes)) {
      v0 = load(cache, k0 + d);
      v1 = load(cache, k1 + d);
      v2 = load(cache, k2 + d);
      v3 = load(cache, k3 + d);
    } else {
      v0 = loadLast<Cache>(k0 + width, tail, width);
      v1 = loadLast<Cache>(k1 + width, tail, width);
      v2 = loadLast<Cache>(k2 + width, tail, width);
      v3 = loadLast<Cache>(k3 + width, tail, width);
    }
    const auto a = hn::LoadU(f32, query + d);
    a0 = hn::MulAdd(a, v0, a0);
    a1 = hn::MulAdd(a, v1, a1);
    a2 = hn::MulAdd(a, v2, a2);
    a3 = hn::MulAdd(a, v3, a3);
    if constexpr (Queries == 2) {
      const auto b = hn::LoadU(f32, query + queryStride + d);
      b0 = hn::MulAdd(b, v0, b0);
      b1 = hn::MulAdd(b, v1, b1);
      b2 = hn::MulAdd(b, v2, b2);
      b3 = hn::MulAdd(b, v3, b3);
    }
  }

  float sums[8];
  sumLanes4(a0, a1, a2, a3, sums);
  if constexpr (Queries == 2)
    sumLanes4(b0, b1, b2, b3, sums + 4);
  for (size_t q = 0; q < Queries; ++q)
    for (size_t key = 0; key < keys; ++key)
      scores[q * scoreStride + key] = sums[4 * q + key];
}

/// Operands of out[q, c] = out[q, c] * correction[q] + sum_r left[q, r] * right[r, c].
template <class Storage> struct Product {
  const float* left;
  size_t leftStride;
  size_t queries;
  size_t rows;
  const typename Storage::Element* right;
  size_t rightStride;
  size_t columns;
  size_t readable;         ///< number of readable elements before each row of `right`
  const float* correction; ///< null: overwrites `out`
  float* out;
  size_t outStride;
};

/// One register block of a Product: `Queries` rows, starting at `q`, times `Vectors` vectors of
/// columns, starting at `column`; with `Tail`, the last `tail` columns, right-aligned in one
/// vector. Accumulator k belongs to query k / Vectors and vector k % Vectors.
template <class Storage, int Queries, int Vectors, bool Tail = false>
HWY_INLINE void multiplyBlock(const Product<Storage>& p, size_t q, size_t column, size_t tail = 0) {
  static_assert(Queries * Vectors <= 8, "accumulators stay in registers");
  static_assert(!Tail || Vectors == 1);
  const F32Tag f32;
  const Storage storage;
  const size_t lanes = hn::Lanes(f32);
  const float* HWY_RESTRICT left = p.left + q * p.leftStride;
  float* HWY_RESTRICT out = p.out + q * p.outStride + column;
  constexpr int kUsed = Queries * Vectors;
  const auto address = [&](int k) HWY_ATTR {
    return out + static_cast<size_t>(k / Vectors) * p.outStride +
           static_cast<size_t>(k % Vectors) * lanes;
  };
  const auto initial = [&](int k) HWY_ATTR {
    if (k >= kUsed || !p.correction)
      return hn::Zero(f32);
    const float factor = p.correction[q + static_cast<size_t>(k / Vectors)];
    return hn::Mul(hn::LoadU(f32, address(k)), hn::Set(f32, factor));
  };
  auto a0 = initial(0), a1 = initial(1), a2 = initial(2), a3 = initial(3);
  auto a4 = initial(4), a5 = initial(5), a6 = initial(6), a7 = initial(7);
  const auto* right = p.right + column;
  for (size_t r = 0; r < p.rows; ++r, right += p.rightStride) {
    const auto factor = [&](int k) HWY_ATTR {
      return hn::Set(f32, left[static_cast<size_t>(k / Vectors) * p.leftStride + r]);
    };
    auto v0 = hn::Zero(f32), v1 = v0, v2 = v0, v3 = v0;
    if constexpr (Tail)
      v0 = loadLast<Storage>(right + tail, tail, p.readable + column + tail);
    else
      v0 = load(storage, right);
    if constexpr (Vectors > 1)
      v1 = load(storage, right + lanes);
    if constexpr (Vectors > 2) {
      v2 = load(storage, right + 2 * lanes);
      v3 = load(storage, right + 3 * lanes);
    }
    const auto vector = [&](int k) HWY_ATTR {
      const int v = k % Vectors;
      return v == 0 ? v0 : v == 1 ? v1 : v == 2 ? v2 : v3;
    };
    a0 = hn::MulAdd(factor(0), vector(0), a0);
    if constexpr (kUsed > 1)
      a1 = hn::MulAdd(factor(1), vector(1), a1);
    if constexpr (kUsed > 2) {
      a2 = hn::MulAdd(factor(2), vector(2), a2);
      a3 = hn::MulAdd(factor(3), vector(3), a3);
    }
    if constexpr (kUsed > 4) {
      a4 = hn::MulAdd(factor(4), vector(4), a4);
      a5 = hn::MulAdd(factor(5), vector(5), a5);
      a6 = hn::MulAdd(factor(6), vector(6), a6);
      a7 = hn::MulAdd(factor(7), vector(7), a7);
    }
  }
  hn::StoreU(a0, f32, address(0));
  if constexpr (kUsed > 1)
    hn::StoreU(a1, f32, address(1));
  if constexpr (kUsed > 2) {
    hn::StoreU(a2, f32, address(2));
    hn::StoreU(a3, f32, address(3));
  }
  if constexpr (kUsed > 4) {
    hn::StoreU(a4, f32, address(4));
    hn::StoreU(a5, f32, address(5));
    hn::StoreU(a6, f32, address(6));
    hn::StoreU(a7, f32, address(7));
  }
}

template <class Storage, int Vectors, bool Tail = false>
HWY_INLINE void multiplyColumns(const Product<Storage>& p, size_t column, size_t tail = 0) {
  size_t q = 0;
  if constexpr (Vectors <= 2)
    for (; q + 4 <= p.queries; q += 4)
      multiplyBlock<Storage, 4, Vectors, Tail>(p, q, column, tail);
  for (; q + 2 <= p.queries; q += 2)
    multiplyBlock<Storage, 2, Vectors, Tail>(p, q, column, tail);
  if (q < p.queries)
    multiplyBlock<Storage, 1, Vectors, Tail>(p, q, column, tail);
}

/// Columns of whole vectors come first; the rest is right-aligned in an additional vector of `out`.
/// Every element is one chain of multiply-adds in the order of the rows, independent of the
/// blocking.
template <class Storage> void multiply(const Product<Storage>& p) {
  const size_t lanes = hn::Lanes(F32Tag());
  size_t column = 0;
  if (p.queries < 4)
    for (; column + 4 * lanes <= p.columns; column += 4 * lanes)
      multiplyColumns<Storage, 4>(p, column);
  for (; column + 2 * lanes <= p.columns; column += 2 * lanes)
    multiplyColumns<Storage, 2>(p, column);
  for (; column + lanes <= p.columns; column += lanes)
    multiplyColumns<Storage, 1>(p, column);
  if (column < p.columns)
    multiplyColumns<Storage, 1, true>(p, column, p.columns - column);
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
