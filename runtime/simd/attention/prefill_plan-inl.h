// Assignment of a tile's keys to vectors of queries in prefill attention, and mask terms.
//
// Included once per SIMD target by Highway's convention for "-inl" headers: the guard toggles.
#if defined(KVOPT_RUNTIME_KERNELS_SIMD_PREFILL_PLAN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVOPT_RUNTIME_KERNELS_SIMD_PREFILL_PLAN_INL_H
#undef KVOPT_RUNTIME_KERNELS_SIMD_PREFILL_PLAN_INL_H
#else
#define KVOPT_RUNTIME_KERNELS_SIMD_PREFILL_PLAN_INL_H
#endif

#include "runtime/simd/attention/panel-inl.h"
#include "runtime/simd/attention/prefill_block.h"
#include "runtime/simd/vector-inl.h"

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {

inline constexpr float kLargest = std::numeric_limits<float>::max();
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
inline constexpr size_t kMaxVectors = static_cast<size_t>(kPanelMaxVectors);

inline size_t unsignedOf(int64_t value) { return static_cast<size_t>(value); }

inline size_t roundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Up to kPanelMaxVectors vectors of the block's queries.
struct Panel {
  size_t first; ///< first lane in the block
  size_t vectors;
  size_t lanes;
};

/// Calls `body(panel)` for the panels of a block. Two panels of two vectors are better than panels
/// of three and one.
template <class Body> HWY_INLINE void forEachPanel(const PrefillBlock& block, Body body) {
  const size_t lanes = hn::Lanes(F32Tag());
  size_t rest = (unsignedOf(block.queries) + lanes - 1) / lanes;
  for (size_t first = 0; rest != 0;) {
    const size_t vectors = rest == 4 ? 2 : HWY_MIN(rest, kMaxVectors);
    body(Panel{first, vectors, vectors * lanes});
    first += vectors * lanes;
    rest -= vectors;
  }
}

/// Keys [begin, end) of a tile, counted from its first key; both are multiples of kPanelRows.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

/// Work of one panel in one tile.
struct PanelTile {
  const Panel& panel;
  int64_t tile;
  size_t tileKeys;
  Span spans[kMaxVectors] = {};
  bool ranged[kMaxVectors] = {}; ///< a lane of the vector does not see all keys of its span
  bool biased[kMaxVectors] = {}; ///< a mask term in its span is not zero

  /// A span that does not widen any other.
  Span none() const { return {tileKeys, 0}; }

  /// Widens the spans so that they begin and end in order. For every key, the vectors that process
  /// it are then adjacent.
  void putInOrder() {
    for (size_t vector = 1; vector < panel.vectors; ++vector)
      spans[vector].end = HWY_MAX(spans[vector].end, spans[vector - 1].end);
    for (size_t vector = panel.vectors - 1; vector != 0; --vector)
      spans[vector - 1].begin = HWY_MIN(spans[vector - 1].begin, spans[vector].begin);
  }

  Span hull() const { return {spans[0].begin, spans[panel.vectors - 1].end}; }
};

/// Some keys, and the vectors of the panel that process them.
struct Run {
  Span keys;
  size_t firstVector;
  size_t vectors;
};

/// Calls `body(run)` for the keys of all vectors' spans, in order.
template <class Body> HWY_INLINE void forEachRun(const PanelTile& part, Body body) {
  const Span hull = part.hull();
  const auto vectorsOf = [&](size_t key) HWY_ATTR {
    size_t first = 0, end = part.panel.vectors;
    while (first < end && part.spans[first].end <= key)
      ++first;
    while (end > first && part.spans[end - 1].begin > key)
      --end;
    return Run{{key, key + kPanelRows}, first, end - first};
  };
  for (size_t key = hull.begin; key < hull.end;) {
    Run run = vectorsOf(key);
    for (key = run.keys.end; key < hull.end; key = run.keys.end) {
      const Run next = vectorsOf(key);
      if (next.firstVector != run.firstVector || next.vectors != run.vectors)
        break;
      run.keys.end = next.keys.end;
    }
    if (run.vectors != 0)
      body(run);
  }
}

/// Rows of the mask for the lanes of one vector of a panel.
struct MaskRows {
  const float* rows[kMaxLanes] = {}; ///< starting at the tile's first key
  bool isNew[kMaxLanes] = {};        ///< differs from the row of the previous lane
};

/// Reads the mask terms of keys [begin, known) of the tile.
inline MaskRows readMaskRows(const PrefillBlock& block, const PanelTile& part, size_t vector,
                             size_t begin, size_t known) {
  const size_t lanes = hn::Lanes(F32Tag());
  const MaskStrides& strides = block.view.maskStrides;
  const bool isInPlace = block.view.maskKind == MaskKind::additive &&
                         block.view.maskStorage == FloatStorage::f32 && strides.column == 1;
  const size_t first = part.panel.first + vector * lanes;
  float* row = block.maskRows + vector * lanes * unsignedOf(block.tileKeys);
  MaskRows mask;
  for (size_t lane = 0; lane < lanes; ++lane, row += block.tileKeys) {
    const auto at = static_cast<int64_t>(first + lane);
    const int64_t head = block.head(at), queryRow = block.row(at);
    mask.isNew[lane] = lane == 0 || (strides.head != 0 && head != block.head(at - 1)) ||
                       (strides.row != 0 && queryRow != block.row(at - 1));
    if (!mask.isNew[lane]) {
      mask.rows[lane] = mask.rows[lane - 1];
      continue;
    }
    if (isInPlace) {
      mask.rows[lane] = static_cast<const float*>(block.view.mask) + block.batch * strides.batch +
                        head * strides.head + queryRow * strides.row + part.tile;
      continue;
    }
    const KeyRange keys{part.tile + static_cast<int64_t>(begin),
                        part.tile + static_cast<int64_t>(known)};
    readMask(block.view, block.batch, head, queryRow, keys, row + begin);
    mask.rows[lane] = row;
  }
  return mask;
}

/// Part of keys [begin, end) that the mask of at least one lane does not hide.
inline Span visibleSpan(const MaskRows& mask, size_t begin, size_t end) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  const auto areHidden = [&](const float* terms) HWY_ATTR {
    return hn::AllTrue(f32, hn::Eq(hn::LoadU(f32, terms), hn::Set(f32, kMinusInfinity)));
  };
  Span visible{end, begin};
  for (size_t lane = 0; lane < lanes; ++lane) {
    if (!mask.isNew[lane])
      continue;
    const float* row = mask.rows[lane];
    size_t first = begin, last = end;
    while (first + lanes <= visible.begin && areHidden(row + first))
      first += lanes;
    while (first < visible.begin && row[first] == kMinusInfinity)
      ++first;
    visible.begin = HWY_MIN(visible.begin, first);
    while (last >= visible.end + lanes && areHidden(row + last - lanes))
      last -= lanes;
    while (last > visible.end && row[last - 1] == kMinusInfinity)
      --last;
    visible.end = HWY_MAX(visible.end, last);
  }
  return visible;
}

inline bool hasTerms(const MaskRows& mask, size_t begin, size_t end) {
  const F32Tag f32;
  const size_t lanes = hn::Lanes(f32);
  auto bits = hn::Zero(f32);
  bool any = false;
  for (size_t lane = 0; lane < lanes; ++lane) {
    if (!mask.isNew[lane])
      continue;
    const float* row = mask.rows[lane];
    size_t key = begin;
    for (; key + lanes <= end; key += lanes)
      bits = hn::Or(bits, hn::LoadU(f32, row + key));
    for (; key < end; ++key)
      any |= row[key] != 0.0f;
  }
  return any || !hn::AllTrue(f32, hn::Eq(bits, hn::Zero(f32)));
}

/// Narrows the part's spans to keys that the mask shows, and writes its terms to block.bias unless
/// all are zero.
inline void applyMask(const PrefillBlock& block, PanelTile& part) {
  const size_t lanes = hn::Lanes(F32Tag()), stride = part.panel.lanes;
  const size_t count = unsignedOf(std::min(block.tileKeys, block.total - part.tile));
  MaskRows masks[kMaxVectors];
  for (size_t vector = 0; vector < part.panel.vectors; ++vector) {
    Span& span = part.spans[vector];
    if (span.begin >= span.end)
      continue;
    const size_t known = HWY_MIN(span.end, count);
    masks[vector] = readMaskRows(block, part, vector, span.begin, known);
    const Span visible = visibleSpan(masks[vector], span.begin, known);
    span = visible.begin < visible.end
               ? Span{visible.begin / kPanelRows * kPanelRows, roundUp(visible.end, kPanelRows)}
               : part.none();
  }
  part.putInOrder();
  for (size_t vector = 0; vector < part.panel.vectors; ++vector) {
    const Span& span = part.spans[vector];
    if (span.begin >= span.end)
      continue;
    const size_t known = HWY_MIN(span.end, count);
    part.biased[vector] = hasTerms(masks[vector], span.begin, known);
    if (!part.biased[vector])
      continue;
    for (size_t lane = 0; lane < lanes; ++lane)
      masks[vector].rows[lane] += span.begin;
    float* bias = block.bias + span.begin * stride + vector * lanes;
    // Terms of keys from T on are unchanged, because these keys are outside of every range.
    transpose(masks[vector].rows, lanes, known - span.begin, bias, stride);
  }
}

inline PanelTile planTile(const PrefillBlock& block, const Panel& panel, int64_t tile) {
  const size_t lanes = hn::Lanes(F32Tag());
  PanelTile part{panel, tile, unsignedOf(block.tileKeys)};
  const auto inTile = [&](int64_t key) {
    return unsignedOf(std::clamp<int64_t>(key - tile, 0, block.tileKeys));
  };
  for (size_t vector = 0; vector < panel.vectors; ++vector) {
    const size_t first = panel.first + vector * lanes, last = first + lanes - 1;
    const size_t begin = inTile(block.begin[first]), end = inTile(block.end[last]);
    part.spans[vector] =
        begin < end ? Span{begin / kPanelRows * kPanelRows, roundUp(end, kPanelRows)} : part.none();
  }
  part.putInOrder();
  if (block.view.maskKind != MaskKind::none)
    applyMask(block, part);
  for (size_t vector = 0; vector < panel.vectors; ++vector) {
    const size_t first = panel.first + vector * lanes, last = first + lanes - 1;
    part.ranged[vector] =
        block.begin[last] > tile + static_cast<int64_t>(part.spans[vector].begin) ||
        block.end[first] < tile + static_cast<int64_t>(part.spans[vector].end);
  }
  return part;
}

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // per-target guard
