// Gemm against a plain double loop.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

TEST(Gemm, TransposesScalesAndBroadcasts) {
  const int64_t m = 4, k = 7, n = 5;
  for (int transA : {0, 1})
    for (int transB : {0, 1})
      for (Extents cShape : {Extents{}, {1}, {n}, {m, 1}, {1, n}, {m, n}}) {
        const TestTensor a =
            randomTensor(ElementType::Float, transA ? Extents{k, m} : Extents{m, k}, 1);
        const TestTensor b =
            randomTensor(ElementType::Float, transB ? Extents{n, k} : Extents{k, n}, 2);
        const TestTensor c = randomTensor(ElementType::Float, cShape, 3);
        std::vector<double> expected;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t x = 0; x < k; ++x)
              sum += a.get(transA ? x * m + i : i * k + x) * b.get(transB ? j * k + x : x * n + j);
            const int64_t column = !cShape.empty() && cShape.back() == n ? j : 0;
            const int64_t row = cShape.size() == 2 && cShape[0] == m ? i : 0;
            const int64_t width = cShape.empty() ? 1 : cShape.back();
            expected.push_back(0.5 * sum - 2 * c.get(row * width + column));
          }
        const KernelResult result = KernelCall("Gemm")
                                        .in(a)
                                        .in(b)
                                        .in(c)
                                        .attr("transA", transA)
                                        .attr("transB", transB)
                                        .attr("alpha", 0.5)
                                        .attr("beta", -2.0)
                                        .run();
        expectTensor(result, {m, n}, expected, 1e-5);
      }
}

TEST(Gemm, WithoutC) {
  const TestTensor a = floats({1, 2}, {1, 2});
  const TestTensor b = floats({2, 1}, {3, 4});
  expectTensor(KernelCall("Gemm").in(a).in(b).run(), {1, 1}, {11});
  expectTensor(KernelCall("Gemm").in(a).in(b).absent().run(), {1, 1}, {11});
}

TEST(Gemm, SixteenBit) {
  const TestTensor a(ElementType::Float16, {1, 2}, {2048, 1});
  const TestTensor b(ElementType::Float16, {2, 1}, {1, 3});
  expectTensor(KernelCall("Gemm").in(a).in(b).run(), {1, 1}, {2052}); // 2051 to even
}

TEST(Gemm, EmptyExtents) {
  const TestTensor a = floats({2, 0}, {});
  const TestTensor b = floats({0, 2}, {});
  expectTensor(KernelCall("Gemm").in(a).in(b).in(floats({2}, {1, 2})).run(), {2, 2}, {1, 2, 1, 2});
  expectTensor(KernelCall("Gemm").in(a).in(b).run(), {2, 2}, {0, 0, 0, 0});
  expectTensor(KernelCall("Gemm").in(b).in(a).run(), {0, 0}, {});
}

TEST(Gemm, Refuses) {
  const TestTensor a = floats({1, 2}, {1, 2});
  expectError(KernelCall("Gemm").in(a).in(a).run(), "inner extents 2 and 1 differ");
  expectError(KernelCall("Gemm").in(a).in(floats({2}, {1, 2})).run(), "must be matrices");
  expectError(KernelCall("Gemm").in(a).in(a).in(floats({2}, {1, 2})).attr("transB", 1).run(),
              "C does not broadcast");
}

TEST(FusedGemm, ActivatesTheSum) {
  const TestTensor a = floats({2, 1}, {1, -2});
  const TestTensor b = floats({1, 2}, {2, -1});
  const TestTensor c = floats({2}, {0.5f, 0});
  auto fused = [&](const char* activation, const char* parameter = nullptr, double value = 0) {
    KernelCall call("com.microsoft::FusedGemm");
    call.in(a).in(b).in(c).attr("activation", activation);
    if (parameter)
      call.attr(parameter, value);
    return call.run();
  };
  // The sums are 2.5, -1, -3.5, 2.
  expectTensor(fused("Relu"), {2, 2}, {2.5, 0, 0, 2});
  expectTensor(fused(""), {2, 2}, {2.5, -1, -3.5, 2});
  expectTensor(fused("LeakyRelu", "activation_alpha", 0.5), {2, 2}, {2.5, -0.5, -1.75, 2});
  expectTensor(fused("HardSigmoid", "activation_beta", 0.25), {2, 2}, {0.75, 0.05, 0, 0.65}, 1e-6);
  expectTensor(fused("Tanh"), {2, 2},
               {std::tanh(2.5), std::tanh(-1.0), std::tanh(-3.5), std::tanh(2.0)}, 1e-6);
  expectTensor(fused("Sigmoid"), {2, 2},
               {1 / (1 + std::exp(-2.5)), 1 / (1 + std::exp(1.0)), 1 / (1 + std::exp(3.5)),
                1 / (1 + std::exp(-2.0))},
               1e-6);
  expectError(fused("Mish"), "the activation 'Mish' is not known");
}

} // namespace
} // namespace kvopt
