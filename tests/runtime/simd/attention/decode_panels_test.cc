// Attention of many queries to values that are columns of the keys.
#include "runtime/simd/attention/attention_block.h"
#include "tests/runtime/simd/attention_problem.h"
#include "tests/runtime/simd/targets.h"

#include <vector>

namespace kvopt {
using namespace simd;

namespace {

void checkAll(const Case& c) {
  SCOPED_TRACE(testing::Message() << c.group << " heads, " << c.rows << " rows, " << c.keys
                                  << " keys, widths " << c.width << " and " << c.valueWidth);
  forEachKernel(c, [&](const TestedKernel& kernel) { check(c, kernel); });
}

TEST(DecodePanels, EveryValueWidth) {
  forEachSimdTarget([] {
    for (const FloatStorage storage : kStorages)
      for (int64_t width = 1; width <= 131; width += width < 36 ? 1 : 5)
        checkAll({.group = 5,
                  .keys = 67,
                  .width = width + 5,
                  .valueWidth = width,
                  .cacheStorage = storage,
                  .valueOffset = width % 6,
                  .scale = 0.1f});
  });
}

TEST(DecodePanels, EveryNumberOfQueries) {
  forEachSimdTarget([] {
    const auto checkQueries = [](const FloatStorage storage, int64_t group, int64_t rows) {
      checkAll({.kvHeads = 2,
                .group = group,
                .rows = rows,
                .keys = 70,
                .width = 40,
                .valueWidth = 37,
                .cacheStorage = storage,
                .valueOffset = 2,
                .causal = true});
    };
    for (const FloatStorage storage : kStorages) {
      for (const int64_t group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17})
        checkQueries(storage, group, 1);
      for (const int64_t group : {1, 2, 3})
        checkQueries(storage, group, 3);
    }
  });
}

TEST(DecodePanels, EveryLength) {
  forEachSimdTarget([] {
    for (int64_t keys = 0; keys <= 2 * kAttentionTileKeys + 3; ++keys)
      checkAll({.group = 6, .keys = keys, .width = 21, .valueWidth = 19, .valueOffset = 1});
  });
}

TEST(DecodePanels, PartsOfTilesMasksAndRaggedLengths) {
  forEachSimdTarget([] {
    for (const int64_t window : {1, 40, 64, 65, 150})
      for (const Mask mask : {Mask::none, Mask::additive, Mask::boolean})
        checkAll({.batches = 3,
                  .group = 8,
                  .rows = 2,
                  .keys = 200,
                  .width = 33,
                  .valueWidth = 32,
                  .totals = {2, 77, 200},
                  .valueOffset = 0,
                  .softcap = 3,
                  .causal = true,
                  .sinks = true,
                  .window = window,
                  .mask = mask});
  });
}

TEST(DecodePanels, Codes) {
  forEachSimdTarget([] {
    for (const int64_t group : {4, 5, 16})
      checkAll({.group = group,
                .keys = 131,
                .width = 70,
                .valueWidth = 66,
                .quantized = true,
                .valueOffset = 3,
                .scale = 0.1f});
  });
}

/// The same values, once in the rows of the keys and once in memory of their own.
TEST(DecodePanels, BitsAreThoseOfValuesApart) {
  forEachSimdTarget([] {
    for (const FloatStorage storage : kStorages)
      for (const int64_t group : {3, 5, 8, 16})
        for (const int64_t valueWidth : {5, 64, 131, 512}) {
          const Case c{.group = group,
                       .keys = 300,
                       .width = valueWidth + 64,
                       .valueWidth = valueWidth,
                       .cacheStorage = storage,
                       .valueOffset = 64,
                       .scale = 0.05f};
          const Problem within(c), apart(c);
          AttentionView view = apart.view();
          view.value = within.view().value;
          forEachKernel(c, [&](const TestedKernel& kernel) {
            compute(within.view(), kernel);
            compute(view, kernel);
            EXPECT_EQ(within.output(), apart.output()) << group << " heads, " << valueWidth;
          });
        }
  });
}

} // namespace
} // namespace kvopt
