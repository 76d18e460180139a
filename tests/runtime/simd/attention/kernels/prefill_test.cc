// The prefill kernel where its blocks, panels and tiles begin and end, on every SIMD target.
#include "tests/runtime/simd/attention_problem.h"
#include "tests/runtime/simd/targets.h"

#include <algorithm>

namespace kvopt {
using namespace simd;

namespace {

const AttentionKernel& prefill() {
  const auto kernels = attentionKernels().all();
  return *std::find_if(kernels.begin(), kernels.end(),
                       [](const AttentionKernel& kernel) { return kernel.name == "prefill"; });
}

void checkPrefill(const Case& c) {
  ASSERT_TRUE(prefill().takes(Problem(c).view()));
  check(c, prefill());
}

/// A panel has 1 to 3 vectors of 1 to 16 queries; a block at most 4 panels.
TEST(Prefill, EveryNumberOfQueries) {
  forEachSimdTarget([] {
    for (int64_t rows = 32; rows <= 52; ++rows)
      checkPrefill({.rows = rows, .keys = rows + 5, .width = 5, .valueWidth = 3, .causal = true});
    for (const int64_t rows : {63, 64, 65, 80, 95, 96, 97, 144, 145, 191, 192, 193, 208, 400})
      for (const bool causal : {false, true})
        checkPrefill({.rows = rows, .keys = rows, .width = 3, .valueWidth = 2, .causal = causal});
  });
}

TEST(Prefill, GroupsThatDivideNoBlock) {
  forEachSimdTarget([] {
    for (const int64_t group : {2, 3, 5, 7, 24, 48, 65, 200})
      for (const int64_t rows : {8, 17})
        if (rows * group >= 32)
          checkPrefill({.batches = 2,
                        .kvHeads = group > 50 ? 1 : 9,
                        .group = group,
                        .rows = rows,
                        .keys = 21,
                        .width = 4,
                        .valueWidth = 5,
                        .causal = true,
                        .window = rows == 8 ? 0 : 6});
  });
}

TEST(Prefill, EveryWidthAndStorage) {
  forEachSimdTarget([] {
    for (const FloatStorage storage : kStorages)
      for (const bool transposed : {false, true})
        for (int64_t width = 1; width <= 33; ++width)
          checkPrefill({.group = 3,
                        .rows = 11,
                        .keys = 21,
                        .width = width,
                        .valueWidth = 34 - width,
                        .queryStorage = storage,
                        .cacheStorage = storage,
                        .outputStorage = storage,
                        .transposed = transposed,
                        .padding = width % 2,
                        .misalignment = width % 3});
  });
}

TEST(Prefill, StoragesMayDiffer) {
  forEachSimdTarget([] {
    for (const FloatStorage query : kStorages)
      for (const FloatStorage cache : kStorages)
        for (const FloatStorage output : kStorages)
          checkPrefill({.batches = 2,
                        .kvHeads = 2,
                        .rows = 33,
                        .keys = 40,
                        .width = 24,
                        .valueWidth = 40,
                        .queryStorage = query,
                        .cacheStorage = cache,
                        .outputStorage = output});
  });
}

/// Tiles begin at multiples of 128 keys, or of 64 where heads are wide.
TEST(Prefill, EveryEndOfATile) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const int64_t keys : {0, 1, 7, 8, 9, 31, 63, 64, 65, 127, 128, 129, 136, 255, 256, 257})
        for (const bool causal : {false, true})
          checkPrefill({.rows = 40,
                        .keys = keys,
                        .width = 6,
                        .valueWidth = 9,
                        .transposed = transposed,
                        .causal = causal,
                        .sinks = keys % 2 == 0});
    for (const int64_t keys : {63, 64, 65, 129})
      checkPrefill({.rows = 32, .keys = keys, .width = 300, .valueWidth = 260, .causal = true});
  });
}

TEST(Prefill, ChunkOverALongPast) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const int64_t window : {0, 1, 7, 100, 128, 129, 500})
        for (const int64_t keys : {384, 700})
          checkPrefill({.group = 3,
                        .rows = 21,
                        .keys = keys,
                        .width = 5,
                        .valueWidth = 6,
                        .transposed = transposed,
                        .softcap = window == 7 ? 2.0f : 0.0f,
                        .causal = true,
                        .window = window});
  });
}

TEST(Prefill, WideHeads) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const FloatStorage storage : {FloatStorage::f32, FloatStorage::f16})
        checkPrefill({.group = 16,
                      .rows = 8,
                      .keys = 75,
                      .width = 576,
                      .valueWidth = 512,
                      .cacheStorage = storage,
                      .transposed = transposed,
                      .scale = 0.05f,
                      .causal = true});
  });
}

TEST(Prefill, EveryMaskAndBroadcast) {
  forEachSimdTarget([] {
    for (const Mask mask : {Mask::additive, Mask::additiveF16, Mask::additiveBf16, Mask::boolean})
      for (int axes = 0; axes < 16; ++axes)
        for (const bool causal : {false, true})
          checkPrefill({.batches = 2,
                        .kvHeads = 2,
                        .group = 3,
                        .rows = 19,
                        .keys = 145,
                        .width = 4,
                        .valueWidth = 4,
                        .causal = causal,
                        .sinks = axes == 3,
                        .window = causal ? 130 : 0,
                        .mask = mask,
                        .maskBatch = (axes & 1) != 0,
                        .maskHead = (axes & 2) != 0,
                        .maskRow = (axes & 4) != 0,
                        .maskColumn = (axes & 8) != 0,
                        .hidden = axes % 2 ? 0.3f : 0.97f});
  });
}

TEST(Prefill, SoftcapSinksScaleAndExtremeLogits) {
  forEachSimdTarget([] {
    for (const float scale : {0.3f, -0.7f, 0.0f, 1e4f})
      for (const float softcap : {0.0f, 2.0f, 50.0f})
        for (const bool sinks : {false, true})
          checkPrefill({.group = 2,
                        .rows = 20,
                        .keys = 140,
                        .width = 10,
                        .valueWidth = 18,
                        .scale = scale,
                        .softcap = softcap,
                        .causal = true,
                        .sinks = sinks});
  });
}

/// T < S too: with the causal frontier the first rows see nothing.
TEST(Prefill, RaggedLengths) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const Mask mask : {Mask::none, Mask::additive})
        checkPrefill({.batches = 5,
                      .kvHeads = 2,
                      .group = 2,
                      .rows = 50,
                      .keys = 150,
                      .totals = {150, 0, 2, 65, 49},
                      .transposed = transposed,
                      .causal = true,
                      .mask = mask});
  });
}

/// The same mask as a frontier and as terms; only the second shows in the memory of the mask.
TEST(Prefill, CausalMaskIsTheCausalFrontier) {
  forEachSimdTarget([] {
    for (const Mask kind : {Mask::additive, Mask::additiveF16}) {
      Case c{.group = 2, .rows = 150, .keys = 300, .causal = true};
      const auto expected = run(c, prefill());
      c.causal = false;
      c.mask = kind;
      c.maskHead = false;
      Problem problem(c);
      for (int64_t i = 0; i < c.rows; ++i)
        for (int64_t j = 0; j < c.keys; ++j)
          problem.setMask(i * c.keys + j, j <= i + c.keys - c.rows ? 0.0f : -kInfinity);
      compute(problem.view(), prefill());
      EXPECT_EQ(problem.output(), expected);
    }
  });
}

TEST(Prefill, FiniteVeryNegativeMaskIsAUniformAverage) {
  forEachSimdTarget([] {
    const Case c{.rows = 40, .keys = 200, .mask = Mask::additive};
    Problem problem(c);
    for (int64_t at = 0; at < c.rows * c.keys; ++at)
      problem.setMask(at, -kLargest);
    for (int64_t j = 0; j < c.keys; ++j)
      problem.setCache(0, 0, j, static_cast<float>(j));
    compute(problem.view(), prefill());
    for (const float value : problem.output())
      EXPECT_FLOAT_EQ(value, 99.5f);
  });
}

TEST(Prefill, InvisibleKeysAreNotRead) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true}) {
      const Case c{
          .rows = 40, .keys = 400, .transposed = transposed, .causal = true, .window = 100};
      Problem problem(c);
      for (int64_t j = 0; j < 261; ++j) // the first row, at 360, sees 261 and later
        problem.setCache(0, 0, j, NAN);
      compute(problem.view(), prefill());
      for (const float value : problem.output())
        ASSERT_TRUE(std::isfinite(value));
    }
  });
}

TEST(Prefill, LayoutDoesNotChangeTheBits) {
  forEachSimdTarget([] {
    for (const FloatStorage storage : kStorages)
      for (const bool transposed : {false, true}) {
        const Case c{.batches = 2,
                     .kvHeads = 2,
                     .group = 3,
                     .rows = 30,
                     .keys = 140,
                     .width = 19,
                     .valueWidth = 37,
                     .cacheStorage = storage,
                     .transposed = transposed,
                     .causal = true,
                     .window = 70,
                     .padding = 0,
                     .spareCapacity = 0,
                     .misalignment = 0};
        const auto expected = run(c, prefill());
        for (const int64_t change : {1, 2, 5, 16, 64}) {
          Case changed = c;
          changed.padding = changed.misalignment = change;
          changed.spareCapacity = 3 * change;
          EXPECT_EQ(run(changed, prefill()), expected) << change;
        }
      }
  });
}

/// The bits of a row do not depend on the rows that are computed with it.
TEST(Prefill, ChunksRepeatTheWhole) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const int64_t window : {0, 40}) {
        const Case c{.group = 3,
                     .rows = 270,
                     .keys = 270,
                     .width = 5,
                     .valueWidth = 7,
                     .transposed = transposed,
                     .causal = true,
                     .window = window};
        Problem problem(c);
        compute(problem.view(), prefill());
        const auto whole = problem.output();
        constexpr int64_t kChunk = 30;
        for (int64_t first = 0; first < c.rows; first += kChunk) {
          AttentionView chunk = problem.view();
          chunk.query = static_cast<const float*>(chunk.query) + first * chunk.queryStrides.row;
          chunk.queryRows = kChunk;
          chunk.totalLength = first + kChunk;
          std::vector<float> rows(static_cast<size_t>(c.group * kChunk * c.valueWidth));
          chunk.output = rows.data();
          chunk.outputStrides = {0, kChunk * c.valueWidth, c.valueWidth};
          compute(chunk, prefill());
          for (int64_t h = 0; h < c.group; ++h)
            for (int64_t at = 0; at < kChunk * c.valueWidth; ++at)
              ASSERT_EQ(rows[static_cast<size_t>(h * kChunk * c.valueWidth + at)],
                        whole[static_cast<size_t>((h * c.rows + first) * c.valueWidth + at)])
                  << first << ' ' << h << ' ' << at;
        }
      }
  });
}

TEST(Prefill, ScratchIsSmall) {
  for (const bool transposed : {false, true})
    for (const int64_t width : {1, 64, 128, 192, 256, 512, 576, 1024, 1535})
      for (const int64_t valueWidth : {1, 64, 128, 256, 512, 960})
        for (const Mask mask : {Mask::none, Mask::boolean}) {
          AttentionView view = Problem({.group = 4,
                                        .rows = 9,
                                        .keys = 1,
                                        .width = width,
                                        .valueWidth = valueWidth,
                                        .transposed = transposed,
                                        .mask = mask})
                                   .view();
          view.queryRows = 1000;
          view.totalLength = int64_t{1} << 40;
          if (prefill().takes(view)) {
            EXPECT_LT(prefill().scratchBytes(view), size_t{1} << 20)
                << width << ' ' << valueWidth << ' ' << transposed;
          }
        }
}

} // namespace
} // namespace kvopt
