// Activations of com.microsoft against <cmath> in double.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

double exact(double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }
double fast(double x) {
  return x / 2 *
         (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

TEST(ContribActivation, Formula) {
  struct Function {
    const char* op;
    double (*f)(double);
    bool biased;
  };
  for (const Function& function :
       {Function{"com.microsoft::Gelu", exact, false},
        {"com.microsoft::BiasGelu", exact, true},
        {"com.microsoft::FastGelu", fast, true},
        {"com.microsoft::FastGelu", fast, false},
        {"com.microsoft::QuickGelu", [](double x) { return x / (1 + std::exp(-1.702 * x)); },
         false}})
    for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16}) {
      SCOPED_TRACE(formatted("{} {}", function.op, onnxName(element).str()));
      const TestTensor x = randomTensor(element, {3, 37}, 1, 3);
      const TestTensor bias = randomTensor(element, {37}, 2);
      std::vector<double> expected;
      for (int64_t i = 0; i < x.count(); ++i)
        expected.push_back(function.f(x.get(i) + (function.biased ? bias.get(i % 37) : 0)));
      KernelCall call(function.op);
      call.in(x);
      if (function.biased)
        call.in(bias);
      const double unit = element == ElementType::Float     ? 0x1p-21
                          : element == ElementType::Float16 ? 0x1p-11
                                                            : 0x1p-8;
      expectTensor(call.threads(2).run(), x.shape(), expected, 8 * unit);
    }
}

TEST(ContribActivation, AlphaAndRefusals) {
  expectTensor(KernelCall("com.microsoft::QuickGelu").in(floats({1}, {2})).attr("alpha", 1.0).run(),
               {1}, {2 / (1 + std::exp(-2.0))}, 1e-6);
  expectError(KernelCall("com.microsoft::FastGelu")
                  .in(floats({2}, {1, 2}))
                  .in(floats({3}, {1, 2, 3}))
                  .run(),
              "the bias must be");
  expectError(KernelCall("com.microsoft::Gelu").in(int64s({1})).run(), "int64");
  expectTensor(
      KernelCall("com.microsoft::FastGelu").in(floats({2, 0}, {})).in(floats({0}, {})).run(),
      {2, 0}, {});
}

} // namespace
} // namespace kvopt
