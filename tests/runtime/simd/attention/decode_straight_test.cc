// Decode attention straight through memory: where its groups of tiles end, and that its bits are
// those of turns.
#include "tests/runtime/simd/attention_problem.h"
#include "tests/runtime/simd/targets.h"

#include "runtime/simd/attention/decode_order.h"

#include <algorithm>
#include <array>

namespace kvopt {
using namespace simd;

namespace {

constexpr int64_t groupKeys = kStraightTiles * kAttentionTileKeys;
/// So many heads are not divided into segments: each unit goes over all of its keys.
constexpr int64_t undividedHeads = 16;

const AttentionKernel& decodeKernel() {
  for (const AttentionKernel& kernel : attentionKernels().all())
    if (kernel.name == "decode")
      return kernel;
  ADD_FAILURE() << "there is no decode kernel";
  return attentionKernels().all().front();
}

TEST(DecodeStraight, IsForFewQueries) {
  for (const bool has512Bits : {false, true}) {
    const auto isStraight = [&](const Case& c) {
      return decodesStraight(Problem(c).view(), has512Bits);
    };
    for (const FloatStorage storage : kStorages)
      for (const int64_t queries : {1, 2, 3, 4, 5, 8}) {
        const bool expected =
            queries <= 2 || (queries == 4 && storage == FloatStorage::f32 && has512Bits);
        EXPECT_EQ(isStraight({.group = queries, .cacheStorage = storage}), expected) << queries;
        EXPECT_EQ(isStraight({.rows = queries, .cacheStorage = storage}), expected) << queries;
      }
    EXPECT_TRUE(isStraight({.quantized = true}));
    EXPECT_FALSE(isStraight({.group = 2, .quantized = true}));
  }
}

TEST(DecodeStraight, GroupsOfTilesEndAnywhere) {
  forEachSimdTarget([] {
    constexpr std::array<int64_t, 3> groups = {1, 2, 4};
    size_t count = 0;
    for (const int64_t keys : {groupKeys - 1, groupKeys, groupKeys + 1, 2 * groupKeys + 70})
      for (const int64_t window : {int64_t{0}, int64_t{40}, groupKeys - 60, groupKeys + 5})
        check({.kvHeads = undividedHeads,
               .group = groups[count++ % groups.size()],
               .keys = keys,
               .width = 5,
               .valueWidth = 3,
               .causal = true,
               .sinks = true,
               .window = window},
              decodeKernel());
  });
}

TEST(DecodeStraight, EveryStorageAndRunsOfVectors) {
  forEachSimdTarget([] {
    for (const FloatStorage storage : kStorages)
      for (const int64_t width : {16, 32, 64, 72, 128})
        check({.kvHeads = undividedHeads,
               .keys = groupKeys + 9,
               .width = width,
               .valueWidth = 136 - width,
               .cacheStorage = storage,
               .scale = 0.1f},
              decodeKernel());
    check({.kvHeads = undividedHeads, .keys = groupKeys + 9, .quantized = true}, decodeKernel());
  });
}

TEST(DecodeStraight, MasksAndRaggedLengthsAcrossGroups) {
  forEachSimdTarget([] {
    for (const Mask mask : {Mask::none, Mask::additive, Mask::boolean})
      check({.batches = 3,
             .kvHeads = undividedHeads,
             .keys = groupKeys + 100,
             .totals = {0, 5, groupKeys + 100},
             .mask = mask,
             .hidden = 0.9f},
            decodeKernel());
  });
}

/// One query of a group of heads after the other, and all of them together.
TEST(DecodeStraight, BitsAreThoseOfTurns) {
  forEachSimdTarget([] {
    for (const FloatStorage storage : kStorages)
      for (const int64_t width : {7, 64, 128, 256})
        // 5 go in turns everywhere.
        for (const int64_t group : {2, width == 7 ? 5 : 4}) {
          const Problem problem({.kvHeads = undividedHeads,
                                 .group = group,
                                 .keys = groupKeys + 77,
                                 .width = width,
                                 .valueWidth = width,
                                 .cacheStorage = storage,
                                 .window = groupKeys + 10});
          compute(problem.view(), decodeKernel());
          const std::vector<float> together = problem.output();
          // What is not written again differs.
          std::fill_n(static_cast<float*>(problem.view().output), together.size(), -1.0f);
          for (int64_t head = 0; head < group; ++head) {
            AttentionView view = problem.view();
            view.queryHeads = undividedHeads;
            view.query = static_cast<const float*>(view.query) + head * view.queryStrides.head;
            view.output = static_cast<float*>(view.output) + head * view.outputStrides.head;
            view.queryStrides.head *= group;
            view.outputStrides.head *= group;
            ASSERT_TRUE(decodesStraight(view, /*has512Bits*/ false));
            compute(view, decodeKernel());
          }
          EXPECT_EQ(problem.output(), together) << "width " << width << ", group " << group;
        }
  });
}

} // namespace
} // namespace kvopt
