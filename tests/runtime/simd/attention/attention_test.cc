// The attention kernel on every SIMD target, against its definition in double.
#include "tests/runtime/simd/attention_problem.h"
#include "tests/runtime/simd/targets.h"

#include <thread>

namespace kvopt {
using namespace simd;

namespace {

TEST(Attention, EveryWidthAndStorage) {
  forEachSimdTarget([] {
    for (const FloatStorage storage : kStorages)
      for (const bool transposed : {false, true})
        for (int64_t width = 1; width <= 33; ++width) {
          check({.group = 3,
                 .rows = 2,
                 .keys = 21,
                 .width = width,
                 .valueWidth = 34 - width,
                 .cacheStorage = storage,
                 .transposed = transposed});
          check({.keys = 9,
                 .width = width,
                 .valueWidth = width,
                 .cacheStorage = storage,
                 .transposed = transposed,
                 .padding = 0,
                 .spareCapacity = 0,
                 .misalignment = 0});
        }
  });
}

TEST(Attention, EveryLength) {
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
                   .transposed = transposed,
                   .causal = causal});
  });
}

TEST(Attention, GroupsBatchesAndStorages) {
  forEachSimdTarget([] {
    for (const FloatStorage cache : kStorages)
      for (const FloatStorage query : kStorages) {
        Case c{.batches = 2,
               .kvHeads = 2,
               .rows = 3,
               .keys = 70,
               .width = 24,
               .valueWidth = 40,
               .queryStorage = query,
               .cacheStorage = cache,
               .outputStorage = query,
               .causal = true};
        for (const int64_t group : {1, 2, 4, 7}) {
          c.group = group;
          check(c);
        }
        if (query == cache) { // more heads than a block has
          c.batches = c.kvHeads = 1;
          c.group = 65;
          check(c);
        }
      }
  });
}

TEST(Attention, EveryMaskAndBroadcast) {
  forEachSimdTarget([] {
    for (const Mask mask : {Mask::additive, Mask::additiveF16, Mask::additiveBf16, Mask::boolean})
      for (int axes = 0; axes < 16; ++axes)
        for (const bool causal : {false, true})
          check({.batches = 2,
                 .kvHeads = 2,
                 .group = 2,
                 .rows = 4,
                 .keys = 67,
                 .causal = causal,
                 .window = causal ? 50 : 0,
                 .mask = mask,
                 .maskBatch = (axes & 1) != 0,
                 .maskHead = (axes & 2) != 0,
                 .maskRow = (axes & 4) != 0,
                 .maskColumn = (axes & 8) != 0});
  });
}

TEST(Attention, CausalWindowSoftcapSinksScale) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const int64_t window : {0, 1, 2, 30, 64, 100})
        for (const float softcap : {0.0f, 2.0f})
          for (const float scale : {0.3f, -0.7f, 0.0f})
            for (const int64_t rows : {1, 5, 40})
              check({.group = 2,
                     .rows = rows,
                     .keys = 140,
                     .width = 10,
                     .valueWidth = 18,
                     .transposed = transposed,
                     .scale = scale,
                     .softcap = softcap,
                     .causal = rows != 5,
                     .sinks = scale < 0,
                     .window = window});
  });
}

/// T < S too: with the causal frontier the first rows see nothing.
TEST(Attention, RaggedLengths) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true})
      for (const int64_t rows : {1, 4})
        check({.batches = 4,
               .kvHeads = 2,
               .group = 2,
               .rows = rows,
               .keys = 90,
               .totals = {90, 0, 2, 65},
               .transposed = transposed,
               .causal = true});
  });
}

TEST(Attention, ExtremeLogits) {
  forEachSimdTarget([] {
    for (const float scale : {100.0f, -100.0f})
      check({.group = 2, .rows = 3, .keys = 150, .width = 16, .scale = scale, .magnitude = 5});
    check({.rows = 2, .keys = 80, .cacheStorage = FloatStorage::f16, .scale = 1e4f, .softcap = 50});
  });
}

TEST(Attention, HiddenRowsAndTilesAreZerosOrIgnored) {
  forEachSimdTarget([] {
    for (const Mask mask : {Mask::additive, Mask::boolean})
      for (const bool sinks : {false, true})
        for (const int64_t rows : {1, 3, 40}) {
          const Case c{
              .group = 2, .rows = rows, .keys = 130, .sinks = sinks, .mask = mask, .hidden = 1};
          forEachKernel(c, [&](const AttentionKernel& kernel) {
            for (const float value : run(c, kernel))
              ASSERT_EQ(value, 0.0f);
          });
        }
    const Case c{.rows = 2, .keys = 200, .mask = Mask::additive, .maskRow = false};
    forEachKernel(c, [&](const AttentionKernel& kernel) {
      Problem problem(c);
      for (int64_t j = 0; j < 192; ++j) // three whole tiles
        problem.setMask(j, -kInfinity);
      problem.setMask(195, 0.0f);
      compute(problem.view(), kernel);
      std::vector<double> exact(16);
      attentionReference(problem.view(), exact);
      const auto result = problem.output();
      for (size_t at = 0; at < exact.size(); ++at)
        EXPECT_NEAR(result[at], exact[at], problem.bound(0, 0, static_cast<int64_t>(at) / 8));
    });
  });
}

/// Masks at the end of the range: the sum with the score may even leave it, and is a number still.
TEST(Attention, FiniteVeryNegativeMaskIsAUniformAverage) {
  forEachSimdTarget([] {
    for (const float lowest : {-kLargest, -3e38f, -1e30f}) {
      const Case c{.keys = 100, .scale = lowest < -3.1e38f ? 1e6f : 1.0f, .mask = Mask::additive};
      forEachKernel(c, [&](const AttentionKernel& kernel) {
        Problem problem(c);
        for (int64_t j = 0; j < 100; ++j) {
          problem.setMask(j, lowest);
          problem.setCache(0, 0, j, static_cast<float>(j));
        }
        compute(problem.view(), kernel);
        for (const float value : problem.output())
          EXPECT_FLOAT_EQ(value, 49.5f);
      });
    }
    // A huge score and a mask at the end of the range that overflow f32 together: clamped.
    const Case c{.keys = 3, .width = 1, .valueWidth = 1, .scale = kLargest, .mask = Mask::additive};
    for (const float mask : {-kLargest, kLargest})
      forEachKernel(c, [&](const AttentionKernel& kernel) {
        Problem problem(c);
        for (int64_t j = 0; j < 3; ++j)
          problem.setMask(j, mask);
        compute(problem.view(), kernel);
        EXPECT_TRUE(std::isfinite(problem.output()[0]));
      });
  });
}

/// Keys that causal and window hide from every row of a block may hold anything.
TEST(Attention, InvisibleKeysAreNotRead) {
  forEachSimdTarget([] {
    for (const bool transposed : {false, true}) {
      const Case c{.keys = 150, .transposed = transposed, .window = 20};
      forEachKernel(c, [&](const AttentionKernel& kernel) {
        Problem problem(c);
        for (int64_t j = 0; j < 130; ++j)
          problem.setCache(0, 0, j, NAN);
        compute(problem.view(), kernel);
        for (const float value : problem.output())
          EXPECT_TRUE(std::isfinite(value));
      });
    }
  });
}

TEST(Attention, LayoutDoesNotChangeTheBits) {
  forEachSimdTarget([] {
    for (const FloatStorage storage : kStorages)
      for (const bool transposed : {false, true}) {
        const Case c{.batches = 2,
                     .kvHeads = 2,
                     .group = 3,
                     .rows = 5,
                     .keys = 77,
                     .width = 19,
                     .valueWidth = 37,
                     .cacheStorage = storage,
                     .transposed = transposed,
                     .causal = true,
                     .window = 70,
                     .padding = 0,
                     .spareCapacity = 0,
                     .misalignment = 0};
        forEachKernel(c, [&](const AttentionKernel& kernel) {
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

/// Row i of a prefill, and a decode step at length i + 1, are the same bits where the kernel is the
/// same.
TEST(Attention, TiledDecodeRepeatsPrefill) {
  const AttentionKernel& tiled = attentionKernels().all().back();
  ASSERT_EQ(tiled.name, "tiled");
  forEachSimdTarget([&] {
    for (const bool transposed : {false, true})
      for (const int64_t window : {0, 40}) {
        Case c{.group = 3,
               .rows = 100,
               .keys = 100,
               .width = 21,
               .valueWidth = 35,
               .transposed = transposed,
               .softcap = 3,
               .causal = true,
               .window = window};
        Problem problem(c);
        compute(problem.view(), tiled);
        const auto prefill = problem.output();
        for (int64_t i = 0; i < c.rows; ++i) {
          AttentionView step = problem.view();
          step.query = static_cast<const float*>(step.query) + i * step.queryStrides.row;
          step.queryRows = 1;
          step.totalLength = i + 1;
          std::vector<float> row(static_cast<size_t>(c.group * c.valueWidth));
          step.output = row.data();
          step.outputStrides = {0, c.valueWidth, 0};
          compute(step, tiled);
          for (int64_t h = 0; h < c.group; ++h)
            for (int64_t d = 0; d < c.valueWidth; ++d)
              ASSERT_EQ(row[static_cast<size_t>(h * c.valueWidth + d)],
                        prefill[static_cast<size_t>((h * c.rows + i) * c.valueWidth + d)])
                  << i << ' ' << h << ' ' << d;
        }
      }
  });
}

TEST(Attention, UnitsMayRunInAnyOrderOnAnyThread) {
  for (const int64_t rows : {1, 50})
    for (const int64_t keys : {90, rows == 1 ? 3000 : 300}) {
      const Case c{.batches = 2,
                   .kvHeads = 3,
                   .group = 4,
                   .rows = rows,
                   .keys = keys,
                   .width = 16,
                   .valueWidth = 16,
                   .causal = true};
      forEachKernel(c, [&](const AttentionKernel& kernel) {
        const auto expected = run(c, kernel);
        for (const int64_t threads : {1, 2, 5}) {
          Problem problem(c);
          AttentionJob job(problem.view(), kernel);
          ASSERT_GE(job.units(), c.batches * c.kvHeads);
          std::vector<std::byte> scratch(job.scratchBytes(threads).value(), std::byte{0xFF});
          job.start(scratch);
          std::vector<std::thread> pool;
          for (int64_t t = 0; t < threads; ++t)
            pool.emplace_back([&job, t, threads] {
              for (int64_t unit = job.units() - 1 - t; unit >= 0; unit -= threads)
                job.run(unit, t, std::max<int64_t>(unit - threads, 0));
            });
          for (std::thread& thread : pool)
            thread.join();
          EXPECT_EQ(problem.output(), expected) << threads;
        }
      });
    }
}

TEST(Attention, ScratchIsBoundedForEveryCacheLength) {
  for (const int64_t rows : {1, 4, 100}) {
    AttentionView view = Problem({.group = 2, .rows = rows, .keys = 100}).view();
    const size_t bytes = AttentionJob(view).scratchBytes(2).value();
    view.totalLength = int64_t{1} << 40;
    EXPECT_EQ(AttentionJob(view).scratchBytes(2).value(), bytes);
    EXPECT_LT(bytes, size_t{400000});
  }
}

TEST(Attention, EmptyProblemsHaveNoUnits) {
  for (const Case& c : {Case{.batches = 0}, Case{.rows = 0}, Case{.valueWidth = 0}}) {
    Problem problem(c);
    AttentionJob job(problem.view());
    EXPECT_EQ(job.units(), 0);
    job.start({});
  }
}

} // namespace
} // namespace kvopt
