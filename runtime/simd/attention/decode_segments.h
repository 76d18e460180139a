// A long past of few heads in segments: how many there are, which keys each has, and how what they
// leave becomes the result of all keys.
#pragma once

#include "runtime/simd/attention/attention_block.h"

#include <span>

namespace kvopt::simd {

/// Segments of each of `blocks` blocks of the view: more than one where blocks alone are few and
/// the past is long. They depend on neither threads nor capacity.
int64_t decodeSegments(const AttentionView& view, int64_t blocks);

/// Segment `index` of `count` of a block's keys: whole tiles, so that sums are cut where tiles are.
KeyRange decodeSegment(KeyRange keys, int64_t index, int64_t count);

/// What segments leave for the merge: counters of the segments that have finished, a block each,
/// and then for each block and segment the maxima, sums and accumulators of its queries.
class DecodePartials {
public:
  /// `memory` has bytes(view, blocks), zero where nothing has been put yet.
  DecodePartials(const AttentionView& view, int64_t blocks, std::span<std::byte> memory);

  /// Bytes for the most segments that there can be, whatever the past; 0 where there is only one.
  static size_t bytes(const AttentionView& view, int64_t blocks);

  /// Keeps what the block computed for segment `index` of all.
  void put(const AttentionBlock& block, int64_t index);

  /// Whether all `segments` of block `index` have finished with this one. What they put is then
  /// visible to this thread.
  bool isLast(int64_t index, int64_t segments);

  /// Merges segments [first, first + count) into the block: with M the largest maximum, both sums
  /// and accumulators are sum_s exp(m_s - M) x_s, in the order of the segments.
  void merge(const AttentionBlock& block, int64_t first, int64_t count) const;

private:
  int64_t each; ///< floats of a segment
  int64_t* counters;
  float* numbers;
};

} // namespace kvopt::simd
