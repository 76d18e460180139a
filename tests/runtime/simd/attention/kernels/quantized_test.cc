// Attention over rows of int8 with scales, by every kernel that takes it, on every SIMD target,
// against its definition in double over the numbers that codes and scales stand for.
#include "tests/runtime/simd/attention_problem.h"
#include "tests/runtime/simd/targets.h"

namespace kvopt {
using namespace simd;

namespace {

TEST(QuantizedAttention, EveryWidth) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (int64_t width = 1; width <= 33; ++width)
        for (const int64_t rows : {1, 12})
          for (const int64_t misalignment : {0, 1})
            check({.group = 3,
                   .rows = rows,
                   .keys = 21,
                   .width = width,
                   .valueWidth = 34 - width,
                   .quantized = true,
                   .transposed = transposed,
                   .padding = 3 * misalignment,
                   .spareCapacity = 2 * misalignment,
                   .misalignment = misalignment});
    for (const int64_t width : {64, 128, 192, 576})
      check({.group = 4, .keys = 70, .width = width, .valueWidth = width - 1, .quantized = true});
  });
}

TEST(QuantizedAttention, EveryLength) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const int64_t rows : {0, 1, 2, 3, 5, 17, 33})
        for (const int64_t keys : {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 130})
          for (const bool causal : {false, true})
            check({.group = 2,
                   .rows = rows,
                   .keys = keys,
                   .width = 12,
                   .valueWidth = 20,
                   .quantized = true,
                   .transposed = transposed,
                   .causal = causal});
    check({.group = 2, .keys = 5000, .width = 16, .valueWidth = 16, .quantized = true});
  });
}

TEST(QuantizedAttention, GroupsBatchesAndTypesOfQueries) {
  forEachSimdTarget([] {
    for (const FloatStorage query : kStorages)
      for (const int64_t rows : {1, 9}) {
        Case c{.batches = 2,
               .kvHeads = 2,
               .rows = rows,
               .keys = 70,
               .width = 24,
               .valueWidth = 40,
               .queryStorage = query,
               .outputStorage = query,
               .quantized = true,
               .causal = true};
        for (c.group = 1; c.group <= 4; ++c.group)
          check(c);
        if (query == FloatStorage::f32) { // more heads than a block has
          c.batches = c.kvHeads = 1;
          c.group = 65;
          check(c);
        }
      }
  });
}

TEST(QuantizedAttention, MasksWindowsSoftcapSinks) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const Mask mask : {Mask::none, Mask::additive, Mask::boolean})
        for (const int64_t window : {0, 1, 30, 64})
          for (const float softcap : {0.0f, 2.0f})
            for (const int64_t rows : {1, 5, 40})
              check({.batches = 2,
                     .group = 2,
                     .rows = rows,
                     .keys = 140,
                     .width = 10,
                     .valueWidth = 18,
                     .quantized = true,
                     .transposed = transposed,
                     .scale = rows == 5 ? -0.7f : 0.3f,
                     .softcap = softcap,
                     .causal = rows != 5,
                     .sinks = window == 1,
                     .window = window,
                     .mask = mask,
                     .maskHead = window == 0});
  });
}

TEST(QuantizedAttention, RaggedLengths) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const int64_t rows : {1, 4, 20})
        check({.batches = 4,
               .kvHeads = 2,
               .group = 2,
               .rows = rows,
               .keys = 90,
               .totals = {90, 0, 2, 65},
               .quantized = true,
               .transposed = transposed,
               .causal = true});
  });
}

TEST(QuantizedAttention, ExtremeLogits) {
  forEachSimdTarget([] {
    for (const float scale : {100.0f, -100.0f, 1e4f})
      for (const int64_t rows : {1, 3, 20})
        check({.group = 2,
               .rows = rows,
               .keys = 150,
               .width = 16,
               .quantized = true,
               .scale = scale,
               .magnitude = 5});
  });
}

/// The scale of a row that no query row sees may be anything, too.
TEST(QuantizedAttention, InvisibleRowsAreNotRead) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const int64_t rows : {1, 20}) {
        const Case c{.group = 2,
                     .rows = rows,
                     .keys = 150,
                     .quantized = true,
                     .transposed = transposed,
                     .window = 20};
        forEachKernel(c, [&](const TestedKernel& kernel) {
          Problem problem(c);
          for (int64_t j = 0; j <= 150 - rows - 20; ++j)
            problem.setCache(0, 0, j, NAN);
          compute(problem.view(), kernel);
          for (const float value : problem.output())
            EXPECT_TRUE(std::isfinite(value));
        });
      }
  });
}

/// A row that stands for NaN must not come out as a number.
TEST(QuantizedAttention, RowsOfNaNAreNaN) {
  forEachSimdTarget([] {
    for (const int64_t rows : {1, 20}) {
      const Case c{.group = 2, .rows = rows, .keys = 100, .quantized = true};
      forEachKernel(c, [&](const TestedKernel& kernel) {
        Problem problem(c);
        problem.setCache(0, 0, 40, NAN);
        compute(problem.view(), kernel);
        for (const float value : problem.output())
          EXPECT_TRUE(std::isnan(value));
      });
    }
  });
}

TEST(QuantizedAttention, HiddenRowsAreZerosAndAveragesUniform) {
  forEachSimdTarget([] {
    for (const Mask mask : {Mask::additive, Mask::boolean})
      for (const int64_t rows : {1, 3, 40}) {
        const Case c{
            .group = 2, .rows = rows, .keys = 130, .quantized = true, .mask = mask, .hidden = 1};
        forEachKernel(c, [&](const TestedKernel& kernel) {
          for (const float value : run(c, kernel))
            ASSERT_EQ(value, 0.0f);
        });
      }
    const Case c{.keys = 100, .quantized = true, .mask = Mask::additive};
    forEachKernel(c, [&](const TestedKernel& kernel) {
      Problem problem(c);
      for (int64_t j = 0; j < 100; ++j) {
        problem.setMask(j, -1e30f);
        problem.setCache(0, 0, j, static_cast<float>(j));
      }
      compute(problem.view(), kernel);
      for (const float value : problem.output())
        EXPECT_FLOAT_EQ(value, 49.5f);
    });
  });
}

TEST(QuantizedAttention, LayoutDoesNotChangeTheBits) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const int64_t rows : {1, 5, 20}) {
        const Case c{.batches = 2,
                     .kvHeads = 2,
                     .group = 3,
                     .rows = rows,
                     .keys = 77,
                     .width = 19,
                     .valueWidth = 37,
                     .quantized = true,
                     .transposed = transposed,
                     .causal = true,
                     .window = 70,
                     .padding = 0,
                     .spareCapacity = 0,
                     .misalignment = 0};
        forEachKernel(c, [&](const TestedKernel& kernel) {
          const auto expected = run(c, kernel);
          for (const int64_t change : {1, 2, 5, 16, 64}) {
            Case changed = c;
            changed.padding = changed.misalignment = change;
            changed.spareCapacity = 3 * change;
            EXPECT_EQ(run(changed, kernel), expected) << change;
          }
        });
      }
  });
}

} // namespace
} // namespace kvopt
