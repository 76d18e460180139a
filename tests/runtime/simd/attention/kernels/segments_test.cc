// Keys and values in segments: the same bits as in one piece, however they are divided.
#include "tests/runtime/simd/attention_problem.h"

#include <deque>

namespace kvopt {
using namespace simd;

namespace {

/// The rows of a problem's cache, each segment in memory of its own with NaN around it.
class Segments {
public:
  Segments(const Problem& problem, const Case& c, const std::vector<int64_t>& starts)
      : view(problem.view()) {
    for (size_t i = 0; i < starts.size(); ++i)
      add(c, starts[i], i + 1 < starts.size() ? starts[i + 1] : c.keys);
    view.segments = segments;
    // Whoever looks here is wrong.
    view.key = view.value = nullptr;
    view.keyStrides = view.valueStrides = {};
  }

  AttentionView view;

private:
  static int64_t bytesOf(FloatStorage storage) { return storage == FloatStorage::f32 ? 4 : 2; }

  void add(const Case& c, int64_t begin, int64_t end) {
    const int64_t width = bytesOf(c.cacheStorage), rows = end - begin;
    const int64_t planes = c.batches * c.kvHeads;
    // Spare rows and columns, of another number in every segment.
    const auto spare = static_cast<int64_t>(segments.size() % 3) + 1;
    const int64_t capacity = rows + spare;
    KeyValueSegment segment;
    segment.begin = begin;
    std::vector<std::byte>& keys = memory.emplace_back();
    std::vector<std::byte>& values = memory.emplace_back();
    const int64_t keyRow = c.transposed ? capacity : c.width + spare;
    const int64_t keyPlane = c.transposed ? c.width * capacity : capacity * keyRow;
    const int64_t valueRow = c.valueWidth + spare;
    keys.assign(static_cast<size_t>(width * planes * keyPlane), std::byte{0xFF});
    values.assign(static_cast<size_t>(width * planes * capacity * valueRow), std::byte{0xFF});
    segment.keyStrides = {c.kvHeads * keyPlane, keyPlane, keyRow};
    segment.valueStrides = {c.kvHeads * capacity * valueRow, capacity * valueRow, valueRow};
    const auto copy = [&](std::vector<std::byte>& to, int64_t at, const void* from, int64_t index,
                          int64_t count) {
      std::copy_n(static_cast<const std::byte*>(from) + width * index, width * count,
                  to.begin() + width * at);
    };
    for (int64_t plane = 0; plane < planes; ++plane) {
      const int64_t b = plane / c.kvHeads, g = plane % c.kvHeads;
      const int64_t keyBase = b * view.keyStrides.batch + g * view.keyStrides.head;
      const int64_t valueBase = b * view.valueStrides.batch + g * view.valueStrides.head;
      for (int64_t j = 0; j < rows; ++j) {
        copy(values, plane * capacity * valueRow + j * valueRow, view.value,
             valueBase + (begin + j) * view.valueStrides.row, c.valueWidth);
        for (int64_t d = 0; d < c.width; ++d)
          copy(keys, plane * keyPlane + (c.transposed ? d * keyRow + j : j * keyRow + d), view.key,
               keyBase + (c.transposed ? d * view.keyStrides.row + begin + j
                                       : (begin + j) * view.keyStrides.row + d),
               1);
      }
    }
    segment.key = keys.data();
    segment.value = values.data();
    segments.push_back(segment);
  }

  std::deque<std::vector<std::byte>> memory;
  std::vector<KeyValueSegment> segments;
};

/// Blocks of `size`, and the last `chunk` positions in a segment of their own.
std::vector<int64_t> blocksOf(int64_t size, int64_t keys, int64_t chunk) {
  std::vector<int64_t> starts{0};
  for (int64_t begin = size; begin < keys - chunk; begin += size)
    starts.push_back(begin);
  if (keys - chunk > starts.back())
    starts.push_back(keys - chunk);
  return starts;
}

/// In segments that start at each of `divisions`.
void expectSameBits(const Case& c, const std::vector<std::vector<int64_t>>& divisions) {
  forEachKernel(c, [&](const AttentionKernel& kernel) {
    const std::vector<float> expected = run(c, kernel);
    for (const std::vector<int64_t>& starts : divisions) {
      const Problem divided(c);
      const Segments segments(divided, c, starts);
      ASSERT_TRUE(kernel.takes(segments.view));
      compute(segments.view, kernel);
      const std::vector<float> found = divided.output();
      ASSERT_EQ(expected.size(), found.size());
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(expected[i], found[i])
            << "element " << i << " of T " << c.keys << " in " << starts.size() << " segments";
      EXPECT_TRUE(divided.paddingIsUntouched());
    }
  });
}

void expectSameBitsForBlocks(Case c) {
  for (int64_t keys : {1, 2, 63, 64, 65, 130, 200, 257}) {
    c.keys = std::max(keys, c.rows);
    std::vector<std::vector<int64_t>> divisions;
    for (int64_t size : {1, 5, 16, 63, 64, 65, 128, 300})
      divisions.push_back(blocksOf(size, c.keys, std::min(c.rows, c.keys)));
    expectSameBits(c, divisions);
  }
}

TEST(Segments, DecodeHasTheSameBits) {
  for (FloatStorage storage : kStorages)
    for (int64_t group : {1, 3, 4})
      expectSameBitsForBlocks({.kvHeads = 2,
                               .group = group,
                               .width = 20,
                               .valueWidth = 12,
                               .cacheStorage = storage,
                               .causal = true});
}

TEST(Segments, SeveralRowsHaveTheSameBits) {
  for (int64_t rows : {3, 9, 33})
    for (FloatStorage storage : kStorages)
      expectSameBitsForBlocks({.batches = 2,
                               .kvHeads = 2,
                               .group = 2,
                               .rows = rows,
                               .width = 20,
                               .valueWidth = 12,
                               .cacheStorage = storage,
                               .causal = true});
}

TEST(Segments, TransposedKeysHaveTheSameBits) {
  for (int64_t rows : {1, 3, 33})
    for (FloatStorage storage : kStorages)
      expectSameBitsForBlocks({.batches = 2,
                               .kvHeads = 2,
                               .group = 2,
                               .rows = rows,
                               .width = 20,
                               .valueWidth = 12,
                               .cacheStorage = storage,
                               .transposed = true,
                               .causal = true});
}

TEST(Segments, WindowsMasksSinksAndCapsHaveTheSameBits) {
  for (int64_t rows : {1, 33})
    for (Mask mask : {Mask::none, Mask::additive, Mask::boolean})
      for (int64_t window : {0, 7, 70})
        expectSameBitsForBlocks({.kvHeads = 2,
                                 .group = 2,
                                 .rows = rows,
                                 .width = 8,
                                 .valueWidth = 8,
                                 .softcap = 3,
                                 .causal = true,
                                 .sinks = true,
                                 .window = window,
                                 .mask = mask});
}

/// A past that is divided among units of work, which are merged.
TEST(Segments, LongPastsHaveTheSameBits) {
  for (int64_t keys : {2048, 2500})
    for (int64_t size : {5, 512, 600, 1024}) {
      Case c{.group = 2, .keys = keys, .width = 16, .valueWidth = 16, .causal = true};
      expectSameBits(c, {blocksOf(size, keys, 1)});
      c.rows = 40;
      expectSameBits(c, {blocksOf(size, keys, 40)});
    }
}

TEST(Segments, SomeMayBeEmpty) {
  Case c{.kvHeads = 2, .rows = 3, .keys = 70, .width = 9, .valueWidth = 7, .causal = true};
  for (int64_t rows : {1, 3, 33}) {
    c.rows = rows;
    expectSameBits(c, {{0, 0, 5, 5, 5, 64, 70}, {0, 70, 70}, {0, 0, 0}});
  }
}

TEST(Segments, AreWithinTheBoundOfTheDefinition) {
  const Case c{.batches = 2,
               .kvHeads = 2,
               .group = 2,
               .rows = 5,
               .keys = 131,
               .width = 24,
               .valueWidth = 10,
               .causal = true};
  Problem whole(c), divided(c);
  Segments segments(divided, c, blocksOf(17, c.keys, c.rows));
  std::vector<double> expected(whole.output().size()), found(expected.size());
  attentionReference(whole.view(), expected);
  attentionReference(segments.view, found);
  EXPECT_EQ(expected, found);
}

} // namespace
} // namespace kvopt
