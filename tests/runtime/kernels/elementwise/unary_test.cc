// Elementwise functions of one operand against <cmath> in double.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

struct ElementFunction {
  const char* op;
  double (*f)(double);
  bool positiveOnly = false;
};

TEST(Unary, AgreesWithCmath) {
  const ElementFunction functions[] = {
      {"Neg", [](double x) { return -x; }},
      {"Abs", [](double x) { return std::abs(x); }},
      {"Sqrt", [](double x) { return std::sqrt(x); }, true},
      {"Reciprocal", [](double x) { return 1 / x; }, true},
      {"Exp", [](double x) { return std::exp(x); }},
      {"Log", [](double x) { return std::log(x); }, true},
      {"Erf", [](double x) { return std::erf(x); }},
      {"Tanh", [](double x) { return std::tanh(x); }},
      {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"Relu", [](double x) { return std::max(x, 0.0); }},
      {"Gelu", [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }},
      {"Sin", [](double x) { return std::sin(x); }},
      {"Cos", [](double x) { return std::cos(x); }},
      {"Floor", [](double x) { return std::floor(x); }},
      {"Ceil", [](double x) { return std::ceil(x); }},
      {"Round", [](double x) { return std::nearbyint(x); }},
      {"Sign", [](double x) { return double(x > 0) - double(x < 0); }},
      {"Softplus", [](double x) { return std::log1p(std::exp(x)); }}};
  for (const ElementFunction& function : functions)
    for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16}) {
      SCOPED_TRACE(formatted("{} {}", function.op, onnxName(element).str()));
      TestTensor x = randomTensor(element, {3, 37}, 1, 3);
      std::vector<double> expected;
      for (int64_t i = 0; i < x.count(); ++i) {
        if (function.positiveOnly)
          x.set(i, std::abs(x.get(i)) + 0.125);
        expected.push_back(function.f(x.get(i)));
      }
      // Results are at most e^3 < 32.
      const double unit = element == ElementType::Float     ? 0x1p-21
                          : element == ElementType::Float16 ? 0x1p-11
                                                            : 0x1p-8;
      expectTensor(KernelCall(function.op, 20).in(x).run(), x.shape(), expected, 32 * unit);
      expectTensor(KernelCall(function.op, 20).in({element, {0, 2}, {}}).run(), {0, 2}, {});
    }
}

TEST(Unary, EdgeCases) {
  expectTensor(KernelCall("Sigmoid").in(floats({2}, {-1e30, 1e30})).run(), {2}, {0, 1});
  expectTensor(KernelCall("Softplus").in(floats({2}, {-1e30, 1e30})).run(), {2}, {0, 1e30}, 1e23);
  expectTensor(KernelCall("Round").in(floats({4}, {0.5, 1.5, 2.5, -0.5})).run(), {4}, {0, 2, 2, 0});
  expectTensor(KernelCall("Sign").in(floats({2}, {NAN, -0.0})).run(), {2}, {NAN, 0});
  expectTensor(KernelCall("Sign").in(int64s({-7, 0, 9})).run(), {3}, {-1, 0, 1});
  expectTensor(KernelCall("Relu").in(floats({2}, {NAN, -1})).run(), {2}, {NAN, 0});
  expectTensor(KernelCall("Neg").in({ElementType::Int8, {1}, {-128}}).run(), {1}, {-128});
  expectTensor(KernelCall("Gelu", 20).in(floats({1}, {1})).attr("approximate", "tanh").run(), {1},
               {0.8411919906}, 1e-6);
  expectError(KernelCall("Gelu", 20).in(floats({1}, {1})).attr("approximate", "x").run(), "'x'");
  expectError(KernelCall("Exp").in(int64s({1})).run(), "element type int64");
}

} // namespace
} // namespace kvopt
