// Largest scores and sums of weights that attention returns, and the lowest score, of every kernel
// on every SIMD target, against the definition in double.
#include "tests/runtime/simd/attention_problem.h"
#include "tests/runtime/simd/targets.h"

namespace kvopt {
using namespace simd;

namespace {

/// Both numbers of every row.
struct RowWeights {
  std::vector<float> maxima, sums;

  explicit RowWeights(AttentionView& view)
      : maxima(static_cast<size_t>(view.batches * view.queryHeads * view.queryRows), -1.0f),
        sums(maxima) {
    view.maxima = maxima.data();
    view.sums = sums.data();
  }
};

/// Scores of about 5 are sums of 8 products, with an error of about 1e-6 each; a sum of weights has
/// that relative error, and one rounding for each of 300 keys.
void checkWeights(const Case& c, float lowestScore) {
  forEachKernel(c, [&](const TestedKernel& kernel) {
    Problem problem(c);
    AttentionView view = problem.view();
    view.lowestScore = lowestScore;
    const RowWeights found(view);
    compute(view, kernel);
    const std::vector<float> output = problem.output();
    const RowWeights expected(view);
    std::vector<double> exact(output.size());
    attentionReference(view, exact);
    for (size_t row = 0; row < found.sums.size(); ++row) {
      // A row that sees nothing has any maximum that is small enough.
      if (expected.sums[row] == 0) {
        EXPECT_EQ(found.sums[row], 0);
        EXPECT_LE(found.maxima[row], lowestScore);
        continue;
      }
      EXPECT_NEAR(found.maxima[row], expected.maxima[row], 1e-5);
      EXPECT_NEAR(found.sums[row], expected.sums[row], 1e-5 * double{expected.sums[row]});
    }
    for (size_t i = 0; i < output.size(); ++i)
      EXPECT_NEAR(output[i], exact[i], 1e-5);
  });
}

TEST(AttentionRowWeights, EqualTheDefinition) {
  forEachSimdTarget([] {
    for (const float lowest : {-std::numeric_limits<float>::max(), 0.25f})
      for (const int64_t rows : {1, 5, 40})
        for (const int64_t keys : {0, 70, 300})
          for (const Mask mask : {Mask::none, Mask::additive})
            checkWeights({.batches = 2,
                          .kvHeads = 2,
                          .group = 2,
                          .rows = rows,
                          .keys = keys,
                          .causal = true,
                          .sinks = keys == 70,
                          .mask = mask},
                         lowest);
  });
}

} // namespace
} // namespace kvopt
