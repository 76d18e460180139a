// Plain C++, because merging is little work compared with the segments.
#include "runtime/simd/attention/decode_segments.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace kvopt::simd {
namespace {

/// Desired number of units of work if there are fewer heads.
constexpr int64_t kWantedUnits = 16;
/// Minimum number of keys of a segment that is worth its merge.
constexpr int64_t kLeastSegment = 512;

int64_t mostSegments(int64_t blocks) {
  return blocks == 0 ? 1 : std::max<int64_t>(1, kWantedUnits / blocks);
}

int64_t paddedWidth(int64_t width) {
  return (width + kAttentionMaxLanes - 1) / kAttentionMaxLanes * kAttentionMaxLanes;
}

/// Each counter has its own cache line.
constexpr int64_t kCounterDistance = 8;

size_t counterBytes(int64_t blocks) {
  return static_cast<size_t>(blocks * kCounterDistance) * sizeof(int64_t);
}

/// Number of floats of one segment.
int64_t floatsOf(const AttentionView& view) {
  return attentionBlockQueries(view) * (2 + paddedWidth(view.valueWidth));
}

} // namespace

int64_t decodeSegments(const AttentionView& view, int64_t blocks) {
  int64_t longest = view.totalLength;
  if (view.totalLengths)
    longest = *std::max_element(view.totalLengths, view.totalLengths + view.batches);
  if (view.window > 0 && view.window < longest) // and so far from overflow
    longest = std::min(longest, view.window + view.queryRows);
  return std::clamp<int64_t>(longest / kLeastSegment, 1, mostSegments(blocks));
}

KeyRange decodeSegment(KeyRange keys, int64_t index, int64_t count) {
  const int64_t firstTile = keys.begin / kAttentionTileKeys;
  const int64_t tiles = (keys.end + kAttentionTileKeys - 1) / kAttentionTileKeys - firstTile;
  const auto cut = [&](int64_t i) {
    return std::clamp((firstTile + tiles * i / count) * kAttentionTileKeys, keys.begin, keys.end);
  };
  return {cut(index), cut(index + 1)};
}

DecodePartials::DecodePartials(const AttentionView& view, int64_t blocks,
                               std::span<std::byte> memory)
    : each(floatsOf(view)), counters(reinterpret_cast<int64_t*>(memory.data())),
      numbers(reinterpret_cast<float*>(memory.data() + counterBytes(blocks))) {}

size_t DecodePartials::bytes(const AttentionView& view, int64_t blocks) {
  const int64_t most = mostSegments(blocks);
  if (most == 1)
    return 0;
  return counterBytes(blocks) + static_cast<size_t>(blocks * most * floatsOf(view)) * sizeof(float);
}

void DecodePartials::put(const AttentionBlock& block, int64_t index) {
  float* to = numbers + index * each;
  to = std::copy_n(block.maximum, block.queries, to);
  to = std::copy_n(block.sum, block.queries, to);
  std::copy_n(block.accumulator, block.queries * block.packedValueWidth, to);
}

bool DecodePartials::isLast(int64_t index, int64_t segments) {
  std::atomic_ref<int64_t> counter(counters[index * kCounterDistance]);
  return counter.fetch_add(1, std::memory_order_acq_rel) == segments - 1;
}

void DecodePartials::merge(const AttentionBlock& block, int64_t first, int64_t count) const {
  const int64_t width = block.packedValueWidth;
  for (int64_t query = 0; query < block.queries; ++query) {
    const auto maximum = [&](int64_t s) { return numbers[(first + s) * each + query]; };
    float top = maximum(0);
    for (int64_t s = 1; s < count; ++s)
      top = std::max(top, maximum(s));
    float* out = block.accumulator + query * width;
    float sum = 0;
    std::fill_n(out, width, 0.0f);
    for (int64_t s = 0; s < count; ++s) {
      const float* segment = numbers + (first + s) * each;
      const float factor = std::exp(maximum(s) - top);
      const float* from = segment + 2 * block.queries + query * width;
      sum += factor * segment[block.queries + query];
      for (int64_t d = 0; d < width; ++d)
        out[d] += factor * from[d];
    }
    block.maximum[query] = top;
    block.sum[query] = sum;
  }
}

} // namespace kvopt::simd
