// Few rows times [inner,columns] weights. Four rows of W, each a quarter of a block after the
// previous one, are streamed together into a tile of sums that stays in the first-level cache.
#include "runtime/linear/float_product.h"

#include <cassert>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/linear/columns.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/linear/prefetch-inl.h"
#include "runtime/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::linear::HWY_NAMESPACE {
using namespace simd;
using namespace simd::HWY_NAMESPACE;
namespace {

/// Number of rows of W that are read together. Each is loaded by separate instructions and followed
/// by its neighbor in memory, so the processor sees the same number of sequential streams.
constexpr size_t kStreams = 4;
/// Number of rows of W whose products are summed before they are added to the result.
constexpr size_t kBlockRows = sumBlock;
/// Number of sums of a tile: 128 KiB, in the second-level cache. Wide tiles read rows of W in long
/// runs.
constexpr size_t kTileFloats = 32768;

/// Maximum size in bytes of a row's sums that leaves room in the first-level cache for streamed
/// data.
constexpr size_t kFirstLevelSums = 16 << 10;
/// Number of contiguous bytes of W from which on the hardware prefetchers suffice.
constexpr size_t kLongRun = 64 << 10;

/// Cache lines that are prefetched; `straight` is prefetchStraight().
enum class Ask { none, each, straight };

/// Rows of W that are read together, in the columns of one tile.
template <class Storage> struct Group {
  const typename Storage::Element* weights; ///< first row
  size_t apart;                             ///< distance between rows of the group, in elements
  size_t width;                             ///< number of columns of the tile
  size_t readable; ///< number of readable elements before each row of `weights`
  size_t next;     ///< distance from these rows to those to prefetch, in elements; 0 for none
  const float* a;  ///< a[0,k] for the group's first k
  size_t aApart;   ///< distance in k between rows of the group
  size_t aStride;
  float* tile; ///< a partial last vector is right-aligned, as by loadLast
  size_t tileStride;
  bool isFirst; ///< whether the tile is uninitialized
};

template <int Vectors>
HWY_INLINE void loadSums(bool isFirst, const float* from, F32Vec& s0, F32Vec& s1, F32Vec& s2,
                         F32Vec& s3) {
  if (isFirst)
    return;
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  s0 = hn::LoadU(f32, from);
  if constexpr (Vectors > 1)
    s1 = hn::LoadU(f32, from + lanes);
  if constexpr (Vectors > 2) {
    s2 = hn::LoadU(f32, from + 2 * lanes);
    s3 = hn::LoadU(f32, from + 3 * lanes);
  }
}

template <int Vectors>
HWY_INLINE void storeSums(float* to, F32Vec s0, F32Vec s1, F32Vec s2, F32Vec s3) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  hn::StoreU(s0, f32, to);
  if constexpr (Vectors > 1)
    hn::StoreU(s1, f32, to + lanes);
  if constexpr (Vectors > 2) {
    hn::StoreU(s2, f32, to + 2 * lanes);
    hn::StoreU(s3, f32, to + 3 * lanes);
  }
}

template <int Vectors>
HWY_INLINE void addScaled(float factor, F32Vec v0, F32Vec v1, F32Vec v2, F32Vec v3, F32Vec& s0,
                          F32Vec& s1, F32Vec& s2, F32Vec& s3) {
  const auto scale = hn::Set(F32Tag(), factor);
  s0 = hn::MulAdd(scale, v0, s0);
  if constexpr (Vectors > 1)
    s1 = hn::MulAdd(scale, v1, s1);
  if constexpr (Vectors > 2) {
    s2 = hn::MulAdd(scale, v2, s2);
    s3 = hn::MulAdd(scale, v3, s3);
  }
}

/// Adds the products of one row of W, starting at `w`, to the sums.
template <class Storage, int Rows, int Vectors, bool Tail, bool Ahead>
HWY_INLINE void addStream(const typename Storage::Element* w, const float* a, size_t aStride,
                          size_t ahead, size_t tail, size_t readable, F32Vec& a0, F32Vec& a1,
                          F32Vec& a2, F32Vec& a3, F32Vec& b0, F32Vec& b1, F32Vec& b2, F32Vec& b3,
                          F32Vec& c0, F32Vec& c1, F32Vec& c2, F32Vec& c3, F32Vec& d0, F32Vec& d1,
                          F32Vec& d2, F32Vec& d3) {
  const F32Tag f32;
  const Storage storage;
  const size_t lanes = hn::Lanes(f32);
  constexpr size_t kPairBytes = (Vectors > 1 ? 2 : 1) * sizeof(*w);
  auto v0 = hn::Zero(f32), v1 = v0, v2 = v0, v3 = v0;
  if constexpr (Ahead)
    prefetch<kPairBytes>(w + ahead);
  if constexpr (Tail)
    v0 = loadLast<Storage>(w + tail, tail, readable);
  else if constexpr (Vectors == 1)
    v0 = load(storage, w);
  else
    loadPair(storage, w, v0, v1);
  if constexpr (Vectors > 2) {
    if constexpr (Ahead)
      prefetch<kPairBytes>(w + ahead + 2 * lanes);
    loadPair(storage, w + 2 * lanes, v2, v3);
  }
  addScaled<Vectors>(a[0], v0, v1, v2, v3, a0, a1, a2, a3);
  if constexpr (Rows > 1)
    addScaled<Vectors>(a[aStride], v0, v1, v2, v3, b0, b1, b2, b3);
  if constexpr (Rows > 2) {
    addScaled<Vectors>(a[2 * aStride], v0, v1, v2, v3, c0, c1, c2, c3);
    addScaled<Vectors>(a[3 * aStride], v0, v1, v2, v3, d0, d1, d2, d3);
  }
}

/// Adds the products of `Streams` rows of W to `Rows` rows of the tile, starting at `m`, and
/// `Vectors` vectors of columns, starting at `column`; with `Tail`, to the last `tail` columns.
template <class Storage, int Streams, int Rows, int Vectors, bool Tail, Ask Lines>
HWY_INLINE void addBlock(const Group<Storage>& g, size_t m, size_t column, size_t ahead,
                         size_t tail = 0) {
  static_assert(Streams == 1 || Streams == 4);
  static_assert(Rows == 1 || Rows == 2 || Rows == 4);
  static_assert(Vectors == 1 || Vectors == 2 || Vectors == 4);
  const F32Tag f32;
  const auto* w = g.weights + column;
  const float* a = g.a + m * g.aStride;
  float* t = g.tile + m * g.tileStride + column;
  auto a0 = hn::Zero(f32), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  auto c0 = a0, c1 = a0, c2 = a0, c3 = a0, d0 = a0, d1 = a0, d2 = a0, d3 = a0;
  loadSums<Vectors>(g.isFirst, t, a0, a1, a2, a3);
  if constexpr (Rows > 1)
    loadSums<Vectors>(g.isFirst, t + g.tileStride, b0, b1, b2, b3);
  if constexpr (Rows > 2) {
    loadSums<Vectors>(g.isFirst, t + 2 * g.tileStride, c0, c1, c2, c3);
    loadSums<Vectors>(g.isFirst, t + 3 * g.tileStride, d0, d1, d2, d3);
  }
  const bool asks = Lines == Ask::straight && column * sizeof(*w) % size_t{straightBytes} == 0;
  const auto add = [&](size_t stream) HWY_ATTR __attribute__((always_inline)) {
    if (asks)
      prefetchStraight(reinterpret_cast<intptr_t>(w + stream * g.apart + ahead));
    addStream<Storage, Rows, Vectors, Tail, Lines == Ask::each>(
        w + stream * g.apart, a + stream * g.aApart, g.aStride, ahead, tail,
        g.readable + column + tail, a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3);
  };
  add(0);
  if constexpr (Streams > 1) {
    add(1);
    add(2);
    add(3);
  }
  storeSums<Vectors>(t, a0, a1, a2, a3);
  if constexpr (Rows > 1)
    storeSums<Vectors>(t + g.tileStride, b0, b1, b2, b3);
  if constexpr (Rows > 2) {
    storeSums<Vectors>(t + 2 * g.tileStride, c0, c1, c2, c3);
    storeSums<Vectors>(t + 3 * g.tileStride, d0, d1, d2, d3);
  }
}

/// All columns of `Rows` rows of the tile.
template <class Storage, int Streams, int Rows, Ask Lines>
void addRows(const Group<Storage>& g, size_t m) {
  constexpr int kVectors = Rows == 4 && !kManyRegisters ? 2 : 4;
  const size_t lanes = hn::Lanes(F32Tag());
  // Prefetches at a fixed distance in the same rows, and at the end of the tile's rows in the next
  // rows.
  constexpr size_t kAhead = Lines == Ask::straight ? size_t{kStraightAhead} : kPrefetchBytes;
  const size_t distance = HWY_MIN(g.width, kAhead / sizeof(*g.weights));
  const size_t turn = g.width - distance;
  const size_t afterTurn = g.next == 0 ? 0 : g.next - turn;
  size_t column = 0;
  for (; column + kVectors * lanes <= turn; column += kVectors * lanes)
    addBlock<Storage, Streams, Rows, kVectors, false, Lines>(g, m, column, distance);
  for (; column + kVectors * lanes <= g.width; column += kVectors * lanes)
    addBlock<Storage, Streams, Rows, kVectors, false, Lines>(g, m, column, afterTurn);
  for (; column + lanes <= g.width; column += lanes)
    addBlock<Storage, Streams, Rows, 1, false, Lines>(g, m, column, afterTurn);
  if (column < g.width)
    addBlock<Storage, Streams, Rows, 1, true, Lines>(g, m, column, afterTurn, g.width - column);
}

/// With Ahead, the first rows also prefetch every line.
template <class Storage, int Streams, bool Ahead>
void addGroup(const Group<Storage>& g, size_t rows) {
  size_t m = 0;
  if constexpr (Ahead) {
    if (rows >= 4)
      addRows<Storage, Streams, 4, Ask::each>(g, 0), m = 4;
    else if (rows >= 2)
      addRows<Storage, Streams, 2, Ask::each>(g, 0), m = 2;
    else
      addRows<Storage, Streams, 1, Ask::each>(g, 0), m = 1;
  }
  for (; m + 4 <= rows; m += 4)
    addRows<Storage, Streams, 4, Ask::none>(g, m);
  for (; m + 2 <= rows; m += 2)
    addRows<Storage, Streams, 2, Ask::none>(g, m);
  if (m < rows)
    addRows<Storage, Streams, 1, Ask::none>(g, m);
}

/// Adds the tile to the result, or stores it as the result.
void addTile(const float* tile, size_t tileStride, const FloatProduct& p, size_t begin,
             size_t width, bool isFirst) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  const size_t tail = width % lanes;
  const size_t whole = width - tail;
  for (size_t m = 0; m < static_cast<size_t>(p.rows); ++m) {
    const float* from = tile + m * tileStride;
    float* to = p.out + m * static_cast<size_t>(p.outStride) + begin;
    for (size_t j = 0; j < whole; j += lanes) {
      auto sum = hn::LoadU(f32, from + j);
      if (!isFirst)
        sum = hn::Add(hn::LoadU(f32, to + j), sum);
      hn::StoreU(sum, f32, to + j);
    }
    for (size_t j = 0; j < tail; ++j) {
      const float sum = from[whole + lanes - tail + j];
      to[whole + j] = isFirst ? sum : to[whole + j] + sum;
    }
  }
}

/// Whether to prefetch only one line of many. With more rows, or with unsuitable sizes of sums or
/// runs of W, computation takes too much time and the hardware prefetchers do not keep up (decision
/// 18).
template <class Storage> bool goesStraight(size_t rows, size_t width, size_t stride) {
  constexpr size_t kBytes = sizeof(typename Storage::Element);
  const bool areRunsLong = width == stride || width * kBytes >= kLongRun;
  return rows == 1 && areRunsLong &&
         (kBytes == sizeof(float) || width * sizeof(float) <= kFirstLevelSums);
}

template <class Storage>
void multiplyTile(const FloatProduct& p, size_t begin, size_t width, size_t lanes) {
  HWY_ALIGN float tile[kTileFloats];
  const size_t inner = static_cast<size_t>(p.inner), rows = static_cast<size_t>(p.rows);
  const size_t stride = static_cast<size_t>(p.weightStride);
  const bool isStraight = goesStraight<Storage>(rows, width, stride);
  Group<Storage> group;
  group.width = width;
  group.readable = begin;
  group.aStride = static_cast<size_t>(p.aStride);
  group.tile = tile;
  group.tileStride = (width + lanes - 1) / lanes * lanes;
  const auto* weights = static_cast<const typename Storage::Element*>(p.weights) + begin;
  for (size_t block = 0; block < inner; block += kBlockRows) {
    const size_t count = HWY_MIN(kBlockRows, inner - block);
    const size_t each = count / kStreams;
    group.apart = each * stride;
    group.aApart = each;
    for (size_t k = 0; k < each; ++k) {
      group.weights = weights + (block + k) * stride;
      group.a = p.a + block + k;
      group.isFirst = k == 0;
      // A stream continues at its position in the next block.
      group.next = k + 1 < each ? stride : block + count < inner ? (count - each + 1) * stride : 0;
      if (isStraight)
        addRows<Storage, kStreams, 1, Ask::straight>(group, 0);
      else
        addGroup<Storage, kStreams, true>(group, rows);
    }
    for (size_t k = kStreams * each; k < count; ++k) {
      group.weights = weights + (block + k) * stride;
      group.a = p.a + block + k;
      group.isFirst = k == 0;
      group.next = 0;
      addGroup<Storage, 1, false>(group, rows);
    }
    addTile(tile, group.tileStride, p, begin, width, block == 0);
  }
}

template <class Storage> void multiplyTiles(const FloatProduct& p, size_t begin, size_t end) {
  const size_t lanes = hn::Lanes(F32Tag());
  const size_t most = kTileFloats / static_cast<size_t>(p.rows) / lanes * lanes;
  for (; begin < end; begin += most)
    multiplyTile<Storage>(p, begin, HWY_MIN(most, end - begin), lanes);
}

} // namespace

void multiplyColumns(const FloatProduct& p, int64_t begin, int64_t end) {
  const size_t from = static_cast<size_t>(begin), to = static_cast<size_t>(end);
  switch (p.storage) {
  case FloatStorage::f32:
    return multiplyTiles<F32Storage>(p, from, to);
  case FloatStorage::f16:
    return multiplyTiles<F16Storage>(p, from, to);
  case FloatStorage::bf16:
    return multiplyTiles<Bf16Storage>(p, from, to);
  }
}

} // namespace kvopt::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::linear {
using namespace simd;

HWY_EXPORT(multiplyColumns);

void multiplyColumns(const FloatProduct& product, int64_t begin, int64_t end) {
  assert(product.rows <= fewRows && begin >= 0 && end <= product.columns);
  if (begin >= end || product.rows == 0)
    return;
  if (product.inner == 0) {
    for (int64_t m = 0; m < product.rows; ++m)
      for (int64_t n = begin; n < end; ++n)
        product.out[m * product.outStride + n] = 0.0f;
    return;
  }
  HWY_DYNAMIC_DISPATCH(multiplyColumns)(product, begin, end);
}

} // namespace kvopt::linear
#endif // HWY_ONCE
