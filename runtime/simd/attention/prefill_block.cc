// Division of a prefill into blocks, and their scratch memory.
#include "runtime/simd/attention/prefill_block.h"

#include <algorithm>
#include <cassert>

namespace kvopt::simd {
namespace {

/// Maximum number of queries of a block: enough to amortize the conversion of a tile of K and V,
/// and few enough for packed queries and outputs to fit into a second-level cache.
constexpr int64_t kMaxQueries = 4 * kPanelMaxLanes;
constexpr int64_t kQueryFloats = int64_t{112} << 10;

/// With fewer blocks some workers are idle, but smaller blocks convert K and V more often.
constexpr int64_t kManyBlocks = 8;
constexpr int64_t kManyQueries = 2 * kPanelMaxLanes;

/// Wider tiles load and store the outputs less often.
constexpr int64_t kTileKeys = 128;
constexpr int64_t kWideTileKeys = 64;
constexpr int64_t kWide = 512;

constexpr int64_t kLineFloats = 16;

/// Minimum number of keys or columns of a packed block, which limits padding.
constexpr int64_t kSmallBlock = kPanelMaxRows / 2;

int64_t roundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t ceilDivide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

bool isEmpty(const AttentionView& view) {
  return view.batches == 0 || view.queryHeads == 0 || view.queryRows == 0 || view.valueWidth == 0;
}

/// Padding, because rows and blocks with distances of a power of two would collide in a first-level
/// cache.
int64_t paddedStride(int64_t length) { return roundUp(length, kLineFloats) + kLineFloats; }

/// Lengths in floats, all multiples of a cache line.
struct Layout {
  explicit Layout(const AttentionView& view) {
    const int64_t widths = view.keyWidth + view.valueWidth;
    const int64_t planes = view.batches * view.kvHeads;
    headQueries = view.queryRows * (view.queryHeads / view.kvHeads);
    blockQueries = std::clamp(kQueryFloats / widths / kPanelMaxLanes, int64_t{1},
                              kMaxQueries / kPanelMaxLanes) *
                   kPanelMaxLanes;
    while (blockQueries > kManyQueries &&
           planes * ceilDivide(headQueries, blockQueries) < kManyBlocks)
      blockQueries -= kPanelMaxLanes;
    tileKeys = widths <= kWide ? kTileKeys : kWideTileKeys;
    lanes = roundUp(std::min(headQueries, blockQueries), kAttentionMaxLanes);
    keyStride = paddedStride(view.keyWidth);
    rowStride = roundUp(std::max({view.keyWidth, view.valueWidth, tileKeys}), kLineFloats);
    query = view.keyWidth * lanes;
    output = roundUp(view.valueWidth, kPanelMaxRows) * lanes;
    keys = view.keyTransposed ? tileKeys / kSmallBlock * paddedStride(view.keyWidth * kSmallBlock)
                              : tileKeys * keyStride;
    values = roundUp(view.valueWidth, kPanelMaxRows) / kSmallBlock *
             paddedStride(tileKeys * kSmallBlock);
    panel = tileKeys * kPanelMaxLanes;
    bias = view.maskKind == MaskKind::none ? 0 : panel;
    rows = kAttentionMaxLanes * rowStride;
  }

  int64_t floats() const {
    const int64_t perLane = 2 + 2 * static_cast<int64_t>(sizeof(int64_t) / sizeof(float));
    return query + output + perLane * lanes + keys + values + panel + 2 * bias + kPanelMaxLanes +
           rows;
  }

  int64_t headQueries, blockQueries, tileKeys, lanes;
  int64_t keyStride, rowStride;
  int64_t query, output, keys, values, panel, bias, rows;
};

} // namespace

int64_t prefillBlocks(const AttentionView& view) {
  assert(view.kvHeads > 0 && view.queryHeads % view.kvHeads == 0);
  if (isEmpty(view))
    return 0;
  const Layout layout(view);
  return view.batches * view.kvHeads * ceilDivide(layout.headQueries, layout.blockQueries);
}

size_t prefillBlockBytes(const AttentionView& view) {
  if (isEmpty(view))
    return 0;
  return static_cast<size_t>(Layout(view).floats() + kLineFloats) * sizeof(float);
}

PrefillBlock::PrefillBlock(const AttentionView& attention, int64_t unit,
                           std::span<std::byte> scratch)
    : view(attention), group(attention.queryHeads / attention.kvHeads) {
  assert(unit >= 0 && unit < prefillBlocks(view));
  assert(scratch.size() >= prefillBlockBytes(view));
  const Layout layout(view);
  const int64_t blocks = ceilDivide(layout.headQueries, layout.blockQueries);
  batch = unit / blocks / view.kvHeads;
  kvHead = unit / blocks % view.kvHeads;
  // With a causal frontier, the last block has the most work, so it comes first.
  firstQuery = (blocks - 1 - unit % blocks) * layout.blockQueries;
  queries = std::min(layout.blockQueries, layout.headQueries - firstQuery);
  total = view.totalLengthOf(batch);
  assert(total >= 0);
  tileKeys = layout.tileKeys;
  keyStride = layout.keyStride;
  rowStride = layout.rowStride;

  constexpr uintptr_t kAlignment = kLineFloats * sizeof(float);
  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  std::byte* next = scratch.data() + (kAlignment - address % kAlignment) % kAlignment;
  const auto take = [&next](int64_t floats) {
    auto* taken = reinterpret_cast<float*>(next);
    next += static_cast<size_t>(floats) * sizeof(float);
    return taken;
  };
  const auto takePositions = [&next](int64_t count) {
    auto* taken = reinterpret_cast<int64_t*>(next);
    next += static_cast<size_t>(count) * sizeof(int64_t);
    return taken;
  };
  packedQueries = take(layout.query);
  output = take(layout.output);
  maximum = take(layout.lanes);
  sum = take(layout.lanes);
  begin = takePositions(layout.lanes);
  end = takePositions(layout.lanes);
  keys = take(layout.keys);
  values = take(layout.values);
  scores = take(layout.panel);
  bias = take(layout.bias);
  maskRows = take(layout.bias);
  correction = take(kPanelMaxLanes);
  rows = take(layout.rows);
}

int64_t PrefillBlock::keyBlockStride(int64_t n) const { return paddedStride(view.keyWidth * n); }

int64_t PrefillBlock::valueBlockStride(int64_t n) const { return paddedStride(tileKeys * n); }

} // namespace kvopt::simd
