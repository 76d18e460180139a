// Division of a long past of few heads into segments: their number, the keys of each, and the merge
// of their results.
#pragma once

#include "runtime/simd/attention/attention_block.h"

#include <span>

namespace kvopt::simd {

/// Number of segments of each of `blocks` blocks of the view: more than one if there are few blocks
/// and the past is long. Independent of threads and capacity.
int64_t decodeSegments(const AttentionView& view, int64_t blocks);

/// Segment `index` of `count` of a block's keys. Segments are whole tiles, so that sums are divided
/// at the borders of tiles.
KeyRange decodeSegment(KeyRange keys, int64_t index, int64_t count);

/// Intermediate results of segments for the merge: one counter per block of the segments that have
/// finished, and for each block and segment the maxima, sums and accumulators of its queries.
class DecodePartials {
public:
  /// `memory` has bytes(view, blocks) bytes, initially zero.
  DecodePartials(const AttentionView& view, int64_t blocks, std::span<std::byte> memory);

  /// Size in bytes for the maximum number of segments, independent of the past; 0 if there is only
  /// one.
  static size_t bytes(const AttentionView& view, int64_t blocks);

  /// Stores the block's results for segment `index` of all.
  void put(const AttentionBlock& block, int64_t index);

  /// Whether this is the last of the `segments` segments of block `index` to finish. The results of
  /// the others are then visible to this thread.
  bool isLast(int64_t index, int64_t segments);

  /// Merges segments [first, first + count) into the block. With the largest maximum M, sums and
  /// accumulators are sum_s exp(m_s - M) x_s, in the order of the segments.
  void merge(const AttentionBlock& block, int64_t first, int64_t count) const;

private:
  int64_t each; ///< number of floats of a segment
  int64_t* counters;
  float* numbers;
};

} // namespace kvopt::simd
