// RotaryEmbedding against its formula.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// Angle of [position, pair]: caches of six positions and `half` pairs.
TestTensor cache(int64_t half, bool sine) {
  TestTensor result(ElementType::Float, {6, half});
  for (int64_t i = 0; i < 6 * half; ++i)
    result.set(i, sine ? std::sin(double(i)) : std::cos(double(i)));
  return result;
}

/// x [B,H,S,D] rotated in its first `rotary` elements, row s of batch b at position positions[b,s].
std::vector<double> rotated(const TestTensor& x, const TestTensor& positions, int64_t rotary,
                            bool interleaved) {
  std::vector<double> y = x.values();
  const Extents& shape = x.shape();
  const int64_t half = rotary / 2;
  for (int64_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
    const int64_t batch = row / (shape[1] * shape[2]);
    const double position = positions.get(batch * shape[2] + row % shape[2]);
    for (int64_t i = 0; i < half; ++i) {
      const double angle = position * double(half) + double(i);
      const int64_t a = row * shape[3] + (interleaved ? 2 * i : i);
      const int64_t b = interleaved ? a + 1 : a + half;
      y[size_t(a)] = std::cos(angle) * x.get(a) - std::sin(angle) * x.get(b);
      y[size_t(b)] = std::sin(angle) * x.get(a) + std::cos(angle) * x.get(b);
    }
  }
  return y;
}

KernelCall rotary(TestTensor x, int64_t half, const TestTensor& positions) {
  KernelCall call("RotaryEmbedding", 23);
  call.in(std::move(x)).in(cache(half, false)).in(cache(half, true)).in(positions);
  return call;
}

TEST(RotaryEmbedding, Formula) {
  const TestTensor positions = int64s({2, 3}, {0, 1, 2, 5, 3, 4});
  const TestTensor x = randomTensor(ElementType::Float, {2, 2, 3, 8}, 1);
  for (int interleaved : {0, 1}) {
    expectTensor(rotary(x, 4, positions).attr("interleaved", interleaved).threads(2).run(),
                 x.shape(), rotated(x, positions, 8, interleaved), 1e-6);
    expectTensor(rotary(x, 2, positions)
                     .attr("interleaved", interleaved)
                     .attr("rotary_embedding_dim", 4)
                     .run(),
                 x.shape(), rotated(x, positions, 4, interleaved), 1e-6);
  }
  const TestTensor half = randomTensor(ElementType::Float16, {2, 2, 3, 8}, 1);
  expectTensor(rotary(half, 4, positions).run(), half.shape(), rotated(half, positions, 8, false),
               0x1p-10);
}

/// [B,S,H*D] with num_heads holds what [B,H,S,D] does in another order.
TEST(RotaryEmbedding, RankThree) {
  const TestTensor positions = int64s({2, 3}, {0, 1, 2, 5, 3, 4});
  const TestTensor x = randomTensor(ElementType::Float, {2, 3, 8}, 1);
  const TestTensor split = KernelCall("Transpose")
                               .in(x.reshaped({2, 3, 2, 4}))
                               .attr("perm", std::vector<int64_t>{0, 2, 1, 3})
                               .run()
                               .outputs[0];
  const KernelResult four = rotary(split, 2, positions).run();
  const KernelResult three = rotary(x, 2, positions).attr("num_heads", 2).run();
  ASSERT_EQ(four.error + three.error, "");
  const KernelResult back = KernelCall("Transpose")
                                .in(four.outputs[0])
                                .attr("perm", std::vector<int64_t>{0, 2, 1, 3})
                                .run();
  EXPECT_TRUE(back.outputs[0].reshaped({2, 3, 8}).sameBytes(three.outputs[0]));
}

TEST(RotaryEmbedding, CachesByRow) {
  const TestTensor x = randomTensor(ElementType::Float, {2, 1, 3, 4}, 1);
  const TestTensor positions = int64s({2, 3}, {0, 1, 2, 3, 4, 5});
  const KernelResult result = KernelCall("RotaryEmbedding", 23)
                                  .in(x)
                                  .in(cache(2, false).reshaped({2, 3, 2}))
                                  .in(cache(2, true).reshaped({2, 3, 2}))
                                  .run();
  expectTensor(result, x.shape(), rotated(x, positions, 4, false), 1e-6);
}

TEST(RotaryEmbedding, EmptyAndRefused) {
  const TestTensor x = randomTensor(ElementType::Float, {1, 1, 1, 4}, 1);
  const int64_t huge = int64_t{1} << 40;
  expectTensor(
      rotary(TestTensor(ElementType::Float, {huge, 0, huge >> 20, 4}), 2, int64s({0, 0}, {})).run(),
      {huge, 0, huge >> 20, 4}, {});
  expectError(rotary(x, 2, int64s({1, 1}, {6})).run(), "position 6 is outside");
  expectError(rotary(x, 2, int64s({1, 1}, {-1})).run(), "position -1 is outside");
  expectError(rotary(x, 2, int64s({1, 2}, {0, 0})).run(), "position_ids must be [B,S]");
  expectError(rotary(x, 4, int64s({1, 1}, {0})).run(), "4 pairs of heads 4 wide");
  expectError(rotary(x, 1, int64s({1, 1}, {0})).run(), "rows must have 2 elements");
  expectError(rotary(x, 2, int64s({1, 1}, {0})).attr("rotary_embedding_dim", 3).run(),
              "3 rotated elements");
  expectError(rotary(x.reshaped({1, 1, 4}), 2, int64s({1, 1}, {0})).run(), "0 heads");
}

KernelCall contrib(TestTensor x, const TestTensor& positions, int64_t half) {
  KernelCall call("com.microsoft::RotaryEmbedding");
  call.in(std::move(x)).in(positions).in(cache(half, false)).in(cache(half, true));
  return call;
}

/// [B,S,H*D] as [B,H,S,D], and back with the same call on [B,H,S,D] seen as [B,S,H,D].
TestTensor swapped(const TestTensor& x, int64_t a, int64_t b, int64_t width) {
  return KernelCall("Transpose")
      .in(x.reshaped({x.shape()[0], a, b, width}))
      .attr("perm", std::vector<int64_t>{0, 2, 1, 3})
      .run()
      .outputs[0];
}

TEST(ContribRotaryEmbedding, Formula) {
  const TestTensor positions = int64s({2, 3}, {0, 1, 2, 5, 3, 4});
  const TestTensor x = randomTensor(ElementType::Float, {2, 2, 3, 8}, 1);
  for (int interleaved : {0, 1}) {
    expectTensor(contrib(x, positions, 4).attr("interleaved", interleaved).run(), x.shape(),
                 rotated(x, positions, 8, interleaved), 1e-6);
    // Partial: rows of the caches say how much is rotated.
    expectTensor(contrib(x, positions, 2)
                     .attr("interleaved", interleaved)
                     .attr("num_heads", 2)
                     .attr("rotary_embedding_dim", 4)
                     .run(),
                 x.shape(), rotated(x, positions, 4, interleaved), 1e-6);
  }
}

TEST(ContribRotaryEmbedding, RankThreeAndOnePosition) {
  const TestTensor x = randomTensor(ElementType::Float16, {2, 3, 8}, 1);
  const TestTensor heads = swapped(x, 3, 2, 4);
  const TestTensor positions = int64s({2, 3}, {2, 3, 4, 2, 3, 4});
  const TestTensor expected(ElementType::Float16, {2, 2, 3, 4},
                            rotated(heads, positions, 4, false));
  const std::vector<double> flat = swapped(expected, 2, 3, 4).values();
  // Heads are as wide as the caches say, or as num_heads does.
  expectTensor(contrib(x, int64s({2}), 2).run(), x.shape(), flat, 0x1p-10);
  expectTensor(contrib(x, int64s({2}), 2).attr("num_heads", 2).run(), x.shape(), flat, 0x1p-10);
  expectTensor(contrib(x, positions, 2).run(), x.shape(), flat, 0x1p-10);
}

TEST(ContribRotaryEmbedding, Refused) {
  const TestTensor x = randomTensor(ElementType::Float, {1, 2, 8}, 1);
  expectError(contrib(x, int64s({5}), 2).run(), "position 6 is outside");
  expectError(contrib(x, int64s({0, 1, 2}), 2).run(), "position_ids");
  expectError(contrib(x, int64s({0}), 2).attr("scale", 2.0).run(), "a scale");
  expectError(contrib(x, int64s({0}), 2).attr("num_heads", 3).run(), "3 heads");
  expectError(contrib(x, int64s({double(INT64_MAX / 1024 * 1024)}), 2).run(), "position");
}

} // namespace
} // namespace kvopt
