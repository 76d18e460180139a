// Swish and SwiGLU against their formulas, and refusals.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

double swish(double x, double alpha) { return x / (1 + std::exp(-alpha * x)); }

TEST(Swish, ElementTypesAndAlpha) {
  const std::pair<ElementType, double> types[] = {{ElementType::Float, 1e-6},
                                                  {ElementType::Float16, 5e-3},
                                                  {ElementType::BFloat16, 4e-2},
                                                  {ElementType::Double, 1e-6}};
  for (const auto& [element, tolerance] : types)
    for (double alpha : {1.0, -0.5, 1.702}) {
      const TestTensor a = randomTensor(element, {3, 5}, 1, 4);
      const TestTensor b = randomTensor(element, {3, 5}, 2, 1);
      std::vector<double> gate;
      std::vector<double> product;
      for (int64_t i = 0; i < a.count(); ++i) {
        gate.push_back(swish(a.get(i), alpha));
        product.push_back(gate.back() * b.get(i));
      }
      expectTensor(KernelCall("Swish", 24).in(a).attr("alpha", alpha).run(), {3, 5}, gate,
                   tolerance);
      expectTensor(KernelCall("SwiGLU", 28).in(a).in(b).attr("alpha", alpha).run(), {3, 5}, product,
                   tolerance);
    }
  expectTensor(KernelCall("Swish", 24).in(floats({2}, {-200, 200})).run(), {2}, {0, 200});
}

TEST(Swish, Refuses) {
  expectError(KernelCall("SwiGLU", 28).in(floats({2}, {1, 2})).in(floats({1}, {1})).run(),
              "one element type and shape");
  expectError(KernelCall("Swish", 24).in(int64s({1})).run(), "element type int64");
}

} // namespace
} // namespace kvopt
