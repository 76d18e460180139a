// Registers<N>: N vectors that stay in registers, and unrolled loops over them. g++ 12 would keep
// an array of vectors in memory.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
// Vectors of scalable targets cannot be members: files that include this header disable SVE, and
// machines with SVE then use NEON.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_REGISTERS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_REGISTERS_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_REGISTERS_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_REGISTERS_INL_H
#endif

#include "runtime/simd/vector-inl.h"

#include <hwy/highway.h>

#include <cstddef>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

template <int N> struct Registers {
  /// Zero. Defined explicitly, because a generated constructor would not have the instruction set.
  HWY_INLINE Registers() : first(hn::Zero(F32Tag())) {}
  F32Vec first;
  Registers<N - 1> rest;
};
template <> struct Registers<0> {
  HWY_INLINE Registers() {}
};

/// Register I < N.
template <int I, int N> HWY_INLINE F32Vec& get(Registers<N>& registers) {
  static_assert(I < N);
  if constexpr (I == 0)
    return registers.first;
  else
    return get<I - 1>(registers.rest);
}
template <int I, int N> HWY_INLINE F32Vec get(const Registers<N>& registers) {
  static_assert(I < N);
  if constexpr (I == 0)
    return registers.first;
  else
    return get<I - 1>(registers.rest);
}

template <int I> struct Index { static constexpr int value = I; };

template <class Body, int... I>
HWY_INLINE void unroll(Body&& body, std::integer_sequence<int, I...>) {
  (body(Index<I>()), ...);
}

/// Calls body(Index<0>()) … body(Index<N-1>()). The body is a lambda that is inlined like others in
/// kvopt: HWY_ATTR and always_inline.
template <int N, class Body> HWY_INLINE void unroll(Body&& body) {
  unroll(body, std::make_integer_sequence<int, N>());
}

#if HWY_TARGET != HWY_SCALAR
/// Sums of four vectors within each block of 128 bits: lane i of a block is the sum of vector i.
HWY_INLINE F32Vec sumsByBlock(F32Vec a, F32Vec b, F32Vec c, F32Vec d) {
  const F32Tag f32;
  const auto ac = hn::Add(hn::InterleaveLower(f32, a, c), hn::InterleaveUpper(f32, a, c));
  const auto bd = hn::Add(hn::InterleaveLower(f32, b, d), hn::InterleaveUpper(f32, b, d));
  return hn::Add(hn::InterleaveLower(f32, ac, bd), hn::InterleaveUpper(f32, ac, bd));
}
#endif

/// Sums over the lanes of N vectors, where N is a multiple of 4, to out[0..N).
template <int N> HWY_INLINE void sumLanes(const Registers<N>& v, float* HWY_RESTRICT out) {
  static_assert(N % 4 == 0);
#if HWY_TARGET == HWY_SCALAR
  unroll<N>([&](auto i) HWY_ATTR
            __attribute__((always_inline)) { out[i.value] = hn::GetLane(get<i.value>(v)); });
#else
  const F32Tag f32;
  constexpr size_t kLanes = hn::MaxLanes(F32Tag());
  const auto quad = [&](auto q) HWY_ATTR __attribute__((always_inline)) {
    constexpr int at = 4 * decltype(q)::value;
    return sumsByBlock(get<at>(v), get<at + 1>(v), get<at + 2>(v), get<at + 3>(v));
  };
  if constexpr (kLanes == 16 && N == 16) {
    const auto halves = [&](F32Vec a, F32Vec b) HWY_ATTR __attribute__((always_inline)) {
      return hn::Add(hn::ConcatLowerLower(f32, b, a), hn::ConcatUpperUpper(f32, b, a));
    };
    const auto even = halves(quad(Index<0>()), quad(Index<2>()));
    const auto odd = halves(quad(Index<1>()), quad(Index<3>()));
    hn::StoreU(
        hn::Add(hn::OddEvenBlocks(odd, even), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(even, odd))),
        f32, out);
  } else if constexpr (kLanes == 16 && N == 8) {
    const auto a = quad(Index<0>()), b = quad(Index<1>());
    const auto pairs = hn::Add(hn::ConcatLowerLower(f32, b, a), hn::ConcatUpperUpper(f32, b, a));
    const auto sums = hn::Add(pairs, hn::SwapAdjacentBlocks(pairs));
    const hn::Half<F32Tag> half;
    const hn::Half<decltype(half)> block;
    hn::StoreU(hn::LowerHalf(block, hn::LowerHalf(half, sums)), block, out);
    hn::StoreU(hn::LowerHalf(block, hn::UpperHalf(half, sums)), block, out + 4);
  } else if constexpr (kLanes == 8 && N % 8 == 0) {
    unroll<N / 8>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
      constexpr int pair = decltype(i)::value;
      const auto a = quad(Index<2 * pair>()), b = quad(Index<2 * pair + 1>());
      hn::StoreU(hn::Add(hn::ConcatLowerLower(f32, b, a), hn::ConcatUpperUpper(f32, b, a)), f32,
                 out + 8 * pair);
    });
  } else {
    const hn::CappedTag<float, 4> block;
    unroll<N / 4>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
      HWY_ALIGN float blocks[kMaxLanes];
      hn::Store(quad(i), f32, blocks);
      auto total = hn::Load(block, blocks);
      if constexpr (kLanes == 8)
        total = hn::Add(total, hn::Load(block, blocks + 4));
      if constexpr (kLanes == 16)
        // In the same order as in the case above.
        total = hn::Add(hn::Add(total, hn::Load(block, blocks + 8)),
                        hn::Add(hn::Load(block, blocks + 4), hn::Load(block, blocks + 12)));
      hn::StoreU(total, block, out + 4 * decltype(i)::value);
    });
  }
#endif
}

/// Calls body(Index<v>(), numbers) for each of `Vectors` adjacent vectors, starting at `row`, and
/// before that before(Index<v>(), from) with their address.
template <class Storage, int Vectors, class Before, class Body>
HWY_INLINE void loadColumns(const typename Storage::Element* row, Before&& before, Body&& body) {
  const size_t lanes = hn::Lanes(F32Tag());
  if constexpr (std::is_same_v<Storage, FourBitStorage>) {
    static_assert(Vectors % 2 == 0);
    unroll<Vectors / 2>([&](auto g) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kFirst = 2 * decltype(g)::value;
      const auto* group = row + storedBytes<Storage>(16 * kFirst);
      before(Index<kFirst>(), group);
      F32Vec first, second;
      load(Storage(), group, first, second);
      body(Index<kFirst>(), first);
      body(Index<kFirst + 1>(), second);
    });
  } else {
    unroll<Vectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      const auto* from = row + decltype(v)::value * lanes;
      before(v, from);
      body(v, load(Storage(), from));
    });
  }
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
