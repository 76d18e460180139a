// Attention of many queries. Tiles of keys and values, converted to f32 once per block of queries,
// are multiplied in register blocks with the queries in lanes. Neither K nor V is transposed, and
// the softmax of a query stays in its lane.
#include "runtime/simd/attention/attention_kernel.h"
#include "runtime/simd/attention/prefill_block.h"
#include "runtime/simd/elementwise.h"

#include <algorithm>
#include <type_traits>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/attention/kernels/prefill.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/simd/attention/panel-inl.h"
#include "runtime/simd/attention/prefill_plan-inl.h"
#include "runtime/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {
namespace {

/// Number of steps of a product of Q and K after which the accumulators are stored: as much of a
/// panel of queries as fits into a first-level cache with a few keys.
constexpr size_t kChunk = 128;

// Packing. Quantized rows are converted to numbers.

template <class Cache> inline constexpr bool isQuantized = std::is_same_v<Cache, I8Storage>;

template <class Query> void packQueries(const PrefillBlock& block) {
  using Element = typename Query::Element;
  const AttentionView& view = block.view;
  const RowStrides& strides = view.queryStrides;
  const size_t lanes = hn::Lanes(F32Tag()), width = unsignedOf(view.keyWidth);
  const auto* base = static_cast<const Element*>(view.query) + block.batch * strides.batch;
  forEachPanel(block, [&](const Panel& panel) HWY_ATTR {
    float* packed = block.packedQueries + panel.first * width;
    for (size_t first = 0; first < panel.lanes; first += lanes) {
      const float* rows[kMaxLanes] = {};
      for (size_t lane = 0; lane < lanes; ++lane) {
        const auto at = static_cast<int64_t>(panel.first + first + lane);
        const Element* row = base + block.head(at) * strides.head + block.row(at) * strides.row;
        if constexpr (std::is_same_v<Element, float>) {
          rows[lane] = row;
        } else {
          float* wide = block.rows + lane * unsignedOf(block.rowStride);
          widenRow<Query>(row, width, wide);
          rows[lane] = wide;
        }
      }
      transpose(rows, lanes, width, packed + first, panel.lanes);
    }
  });
}

/// A sink is a first logit without a value.
void startQueries(const PrefillBlock& block) {
  forEachPanel(block, [&](const Panel& panel) HWY_ATTR {
    for (size_t lane = panel.first; lane < panel.first + panel.lanes; ++lane) {
      const auto at = static_cast<int64_t>(lane);
      const float sink = block.view.sinks ? block.view.sinks[block.head(at)] : kMinusInfinity;
      block.maximum[lane] = HWY_MAX(sink, -kLargest);
      block.sum[lane] = sink == kMinusInfinity ? 0.0f : 1.0f;
      const KeyRange visible = visibleKeys(block.view, block.total, block.row(at));
      block.begin[lane] = visible.begin;
      block.end[lane] = visible.end;
    }
    const size_t rows = roundUp(unsignedOf(block.view.valueWidth), kPanelRows);
    std::fill_n(block.output + panel.first * rows, rows * panel.lanes, 0.0f);
  });
}

/// Multiplies a row by a factor or, if given, by `factors`, one for each element.
void multiplyRow(float* HWY_RESTRICT row, size_t count, float factor,
                 const float* HWY_RESTRICT factors = nullptr) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(f32, row + i),
                       factors ? hn::LoadU(f32, factors + i) : hn::Set(f32, factor)),
               f32, row + i);
  for (; i < count; ++i)
    row[i] *= factors ? factors[i] : factor;
}

/// Calls body(base, stride, part) for the contiguous parts of `keys`, as if the row of position 0
/// were at `base`.
template <class Element, class Body>
HWY_INLINE void forEachPart(const PrefillBlock& block, KeyRange keys, bool ofValues, Body body) {
  const AttentionView& view = block.view;
  const auto visit = [&](const KeyValueSegment& segment, KeyRange part) HWY_ATTR {
    const RowStrides& strides = ofValues ? segment.valueStrides : segment.keyStrides;
    const int64_t step = view.keyTransposed && !ofValues ? 1 : strides.row;
    body(static_cast<const Element*>(ofValues ? segment.value : segment.key) +
             (block.batch * strides.batch + block.kvHead * strides.head - segment.begin * step),
         strides.row, part);
  };
  if (view.segments.empty())
    return visit({0, view.key, view.value, view.keyStrides, view.valueStrides}, keys);
  for (size_t index = segmentOf(view, keys.begin); keys.begin < keys.end; ++index) {
    const int64_t end = std::min(segmentEnd(view, index, block.total), keys.end);
    if (end > keys.begin)
      visit(view.segments[index], {keys.begin, end});
    keys.begin = std::max(keys.begin, end);
  }
}

/// A row as f32; a row of four-bit codes is first converted to bytes.
template <class Cache>
HWY_INLINE void widenCached(const PrefillBlock& block, const typename Cache::Element* row,
                            size_t width, float* wide) {
  if constexpr (isQuantized<Cache>)
    if (block.view.isPacked()) {
      auto* bytes = reinterpret_cast<int8_t*>(block.rows + block.rowStride);
      unpackCodeRows(block.view.codeForm,
                     {reinterpret_cast<const std::byte*>(row), 0, static_cast<int64_t>(width)}, 1,
                     bytes);
      return widenRow<Cache>(bytes, width, wide);
    }
  widenRow<Cache>(row, width, wide);
}

/// Packs K of `keys`, which are in the tile that starts at `tile`. Other keys in their blocks of
/// kPanelRows are zero.
template <class Cache> void packKeys(const PrefillBlock& block, int64_t tile, KeyRange keys) {
  const AttentionView& view = block.view;
  using Element = typename Cache::Element;
  const size_t width = unsignedOf(view.keyWidth);
  const size_t begin = unsignedOf(keys.begin - tile), end = unsignedOf(keys.end - tile);
  const size_t first = begin - begin % kPanelRows, last = roundUp(end, kPanelRows);
  // This memory is unused before a tile's scores.
  float* const scales = block.scores;
  if constexpr (isQuantized<Cache>)
    readScales(view.keyScales, view.keyScaleStrides, block.batch, block.kvHead, keys, scales);
  if (view.keyTransposed) {
    const size_t blockStride = unsignedOf(block.keyBlockStride(kPanelRows));
    float* row = block.rows;
    std::fill(row + first, row + last, 0.0f);
    for (size_t d = 0; d < width; ++d) {
      forEachPart<Element>(
          block, keys, false, [&](const Element* base, int64_t stride, KeyRange part) HWY_ATTR {
            widenRow<Cache>(base + static_cast<int64_t>(d) * stride + part.begin,
                            unsignedOf(part.end - part.begin), row + (part.begin - tile));
          });
      if constexpr (isQuantized<Cache>)
        multiplyRow(row + begin, end - begin, 1.0f, scales);
      deal(row + first, last - first,
           block.keys + first / kPanelRows * blockStride + d * kPanelRows, blockStride);
    }
    return;
  }
  const size_t stride = unsignedOf(block.keyStride);
  std::fill(block.keys + first * stride, block.keys + begin * stride, 0.0f);
  std::fill(block.keys + end * stride, block.keys + last * stride, 0.0f);
  forEachPart<Element>(block, keys, false,
                       [&](const Element* base, int64_t rowStride, KeyRange part) HWY_ATTR {
                         for (int64_t key = part.begin; key < part.end; ++key) {
                           float* to = block.keys + unsignedOf(key - tile) * stride;
                           widenCached<Cache>(block, base + key * rowStride, width, to);
                           if constexpr (isQuantized<Cache>)
                             multiplyRow(to, width, scales[key - keys.begin]);
                         }
                       });
}

template <class Cache> void packValues(const PrefillBlock& block, int64_t tile, KeyRange keys) {
  const AttentionView& view = block.view;
  using Element = typename Cache::Element;
  const size_t width = unsignedOf(view.valueWidth), columns = roundUp(width, kPanelRows);
  const size_t blockStride = unsignedOf(block.valueBlockStride(kPanelRows));
  const size_t begin = unsignedOf(keys.begin - tile), end = unsignedOf(keys.end - tile);
  float* row = block.rows;
  float* const scales = block.scores;
  if constexpr (isQuantized<Cache>)
    readScales(view.valueScales, view.valueScaleStrides, block.batch, block.kvHead, keys, scales);
  std::fill_n(row, columns, 0.0f);
  const size_t first = begin - begin % kPanelRows, last = roundUp(end, kPanelRows);
  for (size_t key = first; key < last; ++key)
    if (key < begin || key >= end)
      deal(row, columns, block.values + key * kPanelRows, blockStride);
  forEachPart<Element>(
      block, keys, true, [&](const Element* base, int64_t rowStride, KeyRange part) HWY_ATTR {
        for (int64_t key = part.begin; key < part.end; ++key) {
          const auto* source = base + key * rowStride;
          const float* wide = row;
          if constexpr (std::is_same_v<Cache, F32Storage>)
            if (columns == width)
              wide = source;
          if (wide == row)
            widenCached<Cache>(block, source, width, row);
          if constexpr (isQuantized<Cache>)
            multiplyRow(row, width, scales[key - keys.begin]);
          deal(wide, columns, block.values + unsignedOf(key - tile) * kPanelRows, blockStride);
        }
      });
}

// Arithmetic.

void scoreTile(const PrefillBlock& block, const PanelTile& part) {
  const Panel& panel = part.panel;
  const size_t lanes = hn::Lanes(F32Tag());
  const size_t width = unsignedOf(block.view.keyWidth);
  const size_t keyStride = block.view.keyTransposed
                               ? unsignedOf(block.keyBlockStride(kPanelRows)) / kPanelRows
                               : unsignedOf(block.keyStride);
  const size_t step = block.view.keyTransposed ? kPanelRows : 1;
  const size_t chunk = roundUp(width / ((width + kChunk - 1) / kChunk), 16);
  std::fill_n(block.correction, kPanelMaxLanes, 1.0f);
  forEachRun(part, [&](const Run& run) HWY_ATTR {
    const size_t firstLane = run.firstVector * lanes;
    const float* queries = block.packedQueries + panel.first * width + firstLane;
    for (size_t d = 0; d < width; d += chunk)
      for (size_t key = run.keys.begin; key < run.keys.end; key += kPanelRows) {
        const PanelProduct product{block.keys + key * keyStride + d * step,
                                   keyStride,
                                   queries + d * panel.lanes,
                                   HWY_MIN(chunk, width - d),
                                   d == 0 ? nullptr : block.correction,
                                   block.scores + key * panel.lanes + firstLane,
                                   panel.lanes};
        if (block.view.keyTransposed)
          multiplyPanel<true>(product, run.vectors);
        else
          multiplyPanel<false>(product, run.vectors);
      }
  });
}

/// Converts one vector's dot products of a tile to weights exp(s - maximum), and updates its
/// maximum, sum and correction.
template <bool Ranged, bool Biased>
void softmaxVector(const PrefillBlock& block, const PanelTile& part, size_t vector) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  const AttentionView& view = block.view;
  const size_t stride = part.panel.lanes, firstLane = part.panel.first + vector * lanes;
  const Span span = part.spans[vector];
  float* const correction = block.correction + vector * lanes;
  if (span.begin >= span.end)
    return;

  HWY_ALIGN float begins[kMaxLanes] = {};
  HWY_ALIGN float ends[kMaxLanes] = {};
  if constexpr (Ranged)
    for (size_t lane = 0; lane < lanes; ++lane) {
      const auto inTile = [&](int64_t key) {
        return static_cast<float>(std::clamp<int64_t>(key - part.tile, 0, block.tileKeys));
      };
      begins[lane] = inTile(block.begin[firstLane + lane]);
      ends[lane] = inTile(block.end[firstLane + lane]);
    }
  const auto begin = hn::Load(f32, begins), end = hn::Load(f32, ends);
  const auto scale = hn::Set(f32, view.scale);
  const auto softcap = hn::Set(f32, view.softcap);
  const auto lowest = hn::Set(f32, view.lowestScore);
  const auto highest = hn::Set(f32, kLargest);
  const auto hidden = hn::Set(f32, kMinusInfinity);
  const auto before = hn::LoadU(f32, block.maximum + firstLane);
  float* const scores = block.scores + vector * lanes;
  auto maximum = before;
  auto position = hn::Set(f32, static_cast<float>(span.begin));
  for (size_t key = span.begin; key < span.end; ++key) {
    float* const at = scores + key * stride;
    auto s = hn::Mul(hn::LoadU(f32, at), scale);
    if (view.softcap != 0)
      s = hn::Mul(softcap, tanh(hn::Div(s, softcap)));
    auto term = hn::Zero(f32);
    if constexpr (Biased) {
      term = hn::LoadU(f32, block.bias + key * stride + vector * lanes);
      s = hn::Add(s, term);
    }
    // NaN passes through: x86 returns the second operand.
    s = hn::Min(highest, hn::Max(lowest, s));
    if constexpr (Biased)
      s = hn::IfThenElse(hn::Eq(term, hidden), hidden, s);
    if constexpr (Ranged) {
      s = hn::IfThenElse(hn::Or(hn::Lt(position, begin), hn::Ge(position, end)), hidden, s);
      position = hn::Add(position, hn::Set(f32, 1.0f));
    }
    hn::StoreU(s, f32, at);
    maximum = hn::Max(maximum, s);
  }
  auto sum = hn::Zero(f32);
  for (size_t key = span.begin; key < span.end; ++key) {
    float* const at = scores + key * stride;
    const auto weight = exp(hn::Sub(hn::LoadU(f32, at), maximum));
    hn::StoreU(weight, f32, at);
    sum = hn::Add(sum, weight);
  }
  const auto factor = exp(hn::Sub(before, maximum));
  hn::StoreU(maximum, f32, block.maximum + firstLane);
  hn::StoreU(factor, f32, correction);
  sum = hn::MulAdd(hn::LoadU(f32, block.sum + firstLane), factor, sum);
  hn::StoreU(sum, f32, block.sum + firstLane);
}

void softmaxTile(const PrefillBlock& block, const PanelTile& part) {
  for (size_t vector = 0; vector < part.panel.vectors; ++vector) {
    if (part.ranged[vector] && part.biased[vector])
      softmaxVector<true, true>(block, part, vector);
    else if (part.ranged[vector])
      softmaxVector<true, false>(block, part, vector);
    else if (part.biased[vector])
      softmaxVector<false, true>(block, part, vector);
    else
      softmaxVector<false, false>(block, part, vector);
  }
}

void accumulateTile(const PrefillBlock& block, const PanelTile& part) {
  const F32Tag f32;
  const Panel& panel = part.panel;
  const size_t lanes = hn::Lanes(f32);
  const size_t columns = roundUp(unsignedOf(block.view.valueWidth), kPanelRows);
  const size_t blockStride = unsignedOf(block.valueBlockStride(kPanelRows));
  forEachRun(part, [&](const Run& run) HWY_ATTR {
    const size_t firstLane = run.firstVector * lanes;
    float* correction = block.correction + firstLane;
    for (size_t column = 0; column < columns; column += kPanelRows)
      multiplyPanel<true>(
          {block.values + column / kPanelRows * blockStride + run.keys.begin * kPanelRows, 1,
           block.scores + run.keys.begin * panel.lanes + firstLane, run.keys.end - run.keys.begin,
           correction, block.output + (panel.first * columns + column * panel.lanes) + firstLane,
           panel.lanes},
          run.vectors);
    // A later run of the same vectors needs no correction.
    for (size_t vector = 0; vector < run.vectors; ++vector)
      hn::StoreU(hn::Set(f32, 1.0f), f32, correction + vector * lanes);
  });
}

/// Quotients of one query: `row` holds its weighted values.
template <class Output> void storeRow(const PrefillBlock& block, int64_t lane, float* row) {
  const F32Tag f32;
  const RowStrides& strides = block.view.outputStrides;
  const size_t lanes = hn::Lanes(f32), width = unsignedOf(block.view.valueWidth);
  const float sum = block.sum[lane];
  block.view.storeWeights(block.batch, block.head(lane), block.row(lane), block.maximum[lane], sum);
  const float factor = sum == 0.0f ? 1.0f : 1.0f / sum;
  auto* out = static_cast<typename Output::Element*>(block.view.output) +
              block.batch * strides.batch + block.head(lane) * strides.head +
              block.row(lane) * strides.row;
  float* to = row;
  if constexpr (std::is_same_v<Output, F32Storage>)
    to = out;
  size_t d = 0;
  for (; d + lanes <= width; d += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(f32, row + d), hn::Set(f32, factor)), f32, to + d);
  for (; d < width; ++d)
    to[d] = row[d] * factor;
  if constexpr (std::is_same_v<Output, F16Storage>)
    convertF32ToF16(row, out, width);
  else if constexpr (std::is_same_v<Output, Bf16Storage>)
    convertF32ToBf16(row, out, width);
}

template <class Output> void storeOutput(const PrefillBlock& block) {
  const size_t lanes = hn::Lanes(F32Tag());
  const size_t columns = roundUp(unsignedOf(block.view.valueWidth), kPanelRows);
  const size_t stride = unsignedOf(block.rowStride);
  forEachPanel(block, [&](const Panel& panel) HWY_ATTR {
    for (size_t vector = 0; vector < panel.vectors; ++vector) {
      const float* lane = block.output + panel.first * columns + vector * lanes;
      for (size_t column = 0; column < columns; column += lanes) {
        const float* rows[kMaxLanes] = {};
        for (size_t i = 0; i < lanes; ++i)
          rows[i] = lane + HWY_MIN(column + i, columns - 1) * panel.lanes;
        transpose(rows, lanes, lanes, block.rows + column, stride);
      }
      const auto first = static_cast<int64_t>(panel.first + vector * lanes);
      const int64_t count = std::min<int64_t>(block.queries - first, static_cast<int64_t>(lanes));
      for (int64_t i = 0; i < count; ++i)
        storeRow<Output>(block, first + i, block.rows + unsignedOf(i) * stride);
    }
  });
}

template <class Cache> void attendTiles(const PrefillBlock& block) {
  // The rows of queries are in order, and so are their visible ranges.
  const KeyRange visible{block.begin[0], block.end[block.queries - 1]};
  int64_t tile = visible.begin - visible.begin % block.tileKeys;
  for (; tile < visible.end; tile += block.tileKeys) {
    const KeyRange keys{std::max(tile, visible.begin),
                        std::min(tile + block.tileKeys, visible.end)};
    bool packed = false;
    forEachPanel(block, [&](const Panel& panel) HWY_ATTR {
      const PanelTile part = planTile(block, panel, tile);
      if (part.hull().begin >= part.hull().end)
        return;
      if (!packed) {
        packKeys<Cache>(block, tile, keys);
        packValues<Cache>(block, tile, keys);
        packed = true;
      }
      scoreTile(block, part);
      softmaxTile(block, part);
      accumulateTile(block, part);
    });
  }
}

/// Calls `body` with the type of `storage`.
template <class Body> HWY_INLINE void withStorage(FloatStorage storage, Body body) {
  switch (storage) {
  case FloatStorage::f32:
    return body(F32Storage());
  case FloatStorage::f16:
    return body(F16Storage());
  case FloatStorage::bf16:
    return body(Bf16Storage());
  }
}

} // namespace

void prefillBlock(const PrefillBlock& block) {
  const AttentionView& view = block.view;
  withStorage(view.queryStorage,
              [&](auto storage) HWY_ATTR { packQueries<decltype(storage)>(block); });
  startQueries(block);
  if (view.isQuantized())
    attendTiles<I8Storage>(block);
  else
    withStorage(view.cacheStorage,
                [&](auto storage) HWY_ATTR { attendTiles<decltype(storage)>(block); });
  withStorage(view.outputStorage,
              [&](auto storage) HWY_ATTR { storeOutput<decltype(storage)>(block); });
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(prefillBlock);

namespace {

/// Minimum number of rows; fewer would leave lanes empty.
constexpr int64_t kFewestRows = 8;
constexpr int64_t kFewestQueries = 32;
/// Maximum width of K and V together; keeps scratch memory below 1 MiB.
constexpr int64_t kWidest = 1536;

bool takes(const AttentionView& view) {
  return view.kvHeads > 0 && view.queryRows >= kFewestRows &&
         view.queryRows * (view.queryHeads / view.kvHeads) >= kFewestQueries &&
         view.keyWidth + view.valueWidth <= kWidest;
}

void run(const AttentionView& view, int64_t unit, int64_t, std::span<std::byte> scratch,
         std::span<std::byte>) {
  const PrefillBlock block(view, unit, scratch);
  HWY_DYNAMIC_DISPATCH(prefillBlock)(block);
}

} // namespace

void register_prefill(AttentionKernelRegistry& registry) {
  registry.add({.name = "prefill",
                .use = "8 rows and 32 queries of a key/value head, or more; any layout, storage "
                       "and mask",
                .rank = 20,
                .takes = takes,
                .units = prefillBlocks,
                .scratchBytes = prefillBlockBytes,
                .run = run});
}

} // namespace kvopt::simd
#endif // HWY_ONCE
