// How far every attention kernel is from its definition, in units in the last place, beside the
// bound: simd_tests --gtest_filter='AttentionUlp.*' prints the table.
#include "tests/runtime/simd/attention_problem.h"

#include <cstdio>
#include <string>

namespace kvopt {
using namespace simd;

namespace {

struct CacheKind {
  const char* name;
  FloatStorage storage;
  bool quantized;
};
constexpr CacheKind kinds[] = {{"f32", FloatStorage::f32, false},
                               {"f16", FloatStorage::f16, false},
                               {"bf16", FloatStorage::bf16, false},
                               {"int8", FloatStorage::f32, true}};

struct Errors {
  double measured = 0, bound = 0;
};

/// The worst row's error and its bound, in units in the last place (2^-23 relative) of the largest
/// element of the row.
Errors errorsOf(const Case& c, const TestedKernel& tested) {
  Problem problem(c);
  compute(problem.view(), tested);
  const auto result = problem.output();
  std::vector<double> exact(result.size());
  attentionReference(problem.view(), exact);
  Errors worst;
  size_t at = 0;
  for (int64_t b = 0; b < c.batches; ++b)
    for (int64_t h = 0; h < c.kvHeads * c.group; ++h)
      for (int64_t i = 0; i < c.rows; ++i) {
        double largest = 0, error = 0;
        for (int64_t d = 0; d < c.valueWidth; ++d, ++at) {
          largest = std::max(largest, std::abs(exact[at]));
          error = std::max(error, std::abs(result[at] - exact[at]));
        }
        const double unit = std::ldexp(1.0, std::ilogb(largest) - 23);
        const double bound =
            problem.bound(b, h, i, tested.kernel.name == "decode" && tested.byteProducts);
        worst.bound = std::max(worst.bound, bound / unit);
        worst.measured = std::max(worst.measured, error / unit);
        EXPECT_LE(error, bound);
      }
  return worst;
}

TEST(AttentionUlp, WithinBounds) {
  std::printf("| kernel | cache | S | T | measured ulp | bound ulp |\n|---|---|--:|--:|--:|--:|\n");
  for (const int64_t rows : {1, 32})
    for (const CacheKind& kind : kinds)
      for (const int64_t keys : {64, 512, 2048}) {
        if (rows > 1 && keys > 512)
          continue;
        const Case c = {.kvHeads = 2,
                        .group = 4,
                        .rows = rows,
                        .keys = keys,
                        .width = 128,
                        .valueWidth = 128,
                        .cacheStorage = kind.storage,
                        .quantized = kind.quantized,
                        .scale = 0.088388346f,
                        .causal = true};
        forEachKernel(c, [&](const TestedKernel& tested) {
          const Errors errors = errorsOf(c, tested);
          std::printf(
              "| %s%s | %s | %d | %d | %.1f | %.0f |\n", std::string(tested.kernel.name).c_str(),
              tested.byteProducts ? "" : " without products of bytes", kind.name,
              static_cast<int>(rows), static_cast<int>(keys), errors.measured, errors.bound);
        });
      }
}

} // namespace
} // namespace kvopt
