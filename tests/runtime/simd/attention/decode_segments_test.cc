// Segments of a long past: that they are all of it, and what their merge gives.
#include "runtime/simd/attention/decode_segments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvopt {
using namespace simd;

namespace {

AttentionView viewOf(int64_t heads, int64_t total) {
  AttentionView view;
  view.batches = 1;
  view.queryHeads = view.kvHeads = heads;
  view.queryRows = 1;
  view.keyWidth = view.valueWidth = 3;
  view.totalLength = total;
  return view;
}

TEST(DecodeSegments, AreMoreThanOneWhereHeadsAreFewAndThePastIsLong) {
  EXPECT_EQ(decodeSegments(viewOf(1, 511), 1), 1);
  EXPECT_EQ(decodeSegments(viewOf(1, 1024), 1), 2);
  EXPECT_EQ(decodeSegments(viewOf(1, 1 << 20), 1), 16);
  EXPECT_EQ(decodeSegments(viewOf(8, 1 << 20), 8), 2);
  EXPECT_EQ(decodeSegments(viewOf(16, 1 << 20), 16), 1);
  EXPECT_EQ(decodeSegments(viewOf(1, 0), 0), 1);
  AttentionView windowed = viewOf(1, 1 << 20);
  windowed.window = 1024;
  EXPECT_EQ(decodeSegments(windowed, 1), 2);
  for (int64_t beyond : {int64_t{1} << 20, INT64_MAX - 1, INT64_MAX}) {
    windowed.window = beyond;
    EXPECT_EQ(decodeSegments(windowed, 1), 16) << beyond;
  }
  const int64_t lengths[] = {3, 2048};
  AttentionView ragged = viewOf(1, 0);
  ragged.batches = 2;
  ragged.totalLengths = lengths;
  EXPECT_EQ(decodeSegments(ragged, 2), 4);
}

TEST(DecodeSegments, AreAllKeysInOrderAndCutBetweenTiles) {
  for (const KeyRange keys : {KeyRange{0, 0}, {0, 1}, {0, 64}, {5, 7}, {63, 65}, {100, 1000}})
    for (int64_t count = 1; count < 20; ++count) {
      int64_t at = keys.begin;
      for (int64_t i = 0; i < count; ++i) {
        const KeyRange part = decodeSegment(keys, i, count);
        EXPECT_EQ(part.begin, at);
        EXPECT_LE(part.begin, part.end);
        if (part.end != keys.begin && part.end != keys.end) {
          EXPECT_EQ(part.end % kAttentionTileKeys, 0);
        }
        at = part.end;
      }
      EXPECT_EQ(at, keys.end);
    }
}

/// Sums of exp(score) and of exp(score) v over two segments, each relative to a maximum of its own.
TEST(DecodePartials, MergeToTheSumsOverAllKeys) {
  AttentionView view = viewOf(1, 1024);
  const int64_t blocks = attentionBlocks(view);
  std::vector<std::byte> shared(DecodePartials::bytes(view, blocks));
  ASSERT_FALSE(shared.empty());
  std::vector<std::byte> scratch(attentionBlockBytes(view));
  const AttentionBlock block(view, 0, scratch);
  DecodePartials partials(view, blocks, shared);
  const float maxima[] = {-2.0f, 3.0f}, sums[] = {1.5f, 4.0f}, values[] = {10.0f, -7.0f};
  for (int64_t s = 0; s < 2; ++s) {
    block.maximum[0] = maxima[s];
    block.sum[0] = sums[s];
    for (int64_t d = 0; d < block.packedValueWidth; ++d)
      block.accumulator[d] = values[s] + static_cast<float>(d);
    partials.put(block, s);
    EXPECT_EQ(partials.isLast(0, 2), s == 1);
  }
  partials.merge(block, 0, 2);
  const double factor = std::exp(-5.0);
  EXPECT_EQ(block.maximum[0], 3.0f);
  EXPECT_FLOAT_EQ(block.sum[0], static_cast<float>(1.5 * factor + 4.0));
  for (int d = 0; d < 3; ++d)
    EXPECT_FLOAT_EQ(block.accumulator[d], static_cast<float>((10.0 + d) * factor - 7.0 + d));
}

TEST(DecodePartials, NeedNoMemoryWhereThereIsOneSegment) {
  EXPECT_EQ(DecodePartials::bytes(viewOf(16, 1 << 20), 16), 0u);
  EXPECT_EQ(DecodePartials::bytes(viewOf(1, 1 << 20), 1), DecodePartials::bytes(viewOf(1, 1), 1));
}

} // namespace
} // namespace kvopt
