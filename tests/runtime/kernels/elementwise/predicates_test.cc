// Comparisons, logic, IsNaN, IsInf.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

KernelResult applyPredicate(const char* op, TestTensor a, TestTensor b) {
  return KernelCall(op).in(std::move(a)).in(std::move(b)).run();
}

TEST(Predicates, Comparisons) {
  const TestTensor a = floats({4}, {1, 2, 3, kNan}), b = floats({4}, {2, 2, 2, kNan});
  expectTensor(applyPredicate("Equal", a, b), {4}, {0, 1, 0, 0});
  expectTensor(applyPredicate("Less", a, b), {4}, {1, 0, 0, 0});
  expectTensor(applyPredicate("LessOrEqual", a, b), {4}, {1, 1, 0, 0});
  expectTensor(applyPredicate("Greater", a, b), {4}, {0, 0, 1, 0});
  expectTensor(applyPredicate("GreaterOrEqual", a, b), {4}, {0, 1, 1, 0});
  expectTensor(applyPredicate("Less", int64s({2, 1}, {0, 1}), int64s({0, 1})), {2, 2},
               {0, 1, 0, 0});
  expectTensor(applyPredicate("Equal", bools({2}, {1, 0}), bools({1}, {1})), {2}, {1, 0});
  expectError(applyPredicate("Less", bools({1}, {1}), bools({1}, {1})), "element type bool");
}

/// Every byte but 0 is true, and results are 0 or 1.
TEST(Predicates, Logic) {
  const TestTensor a = bools({4}, {0, 0, 1, 2}), b = bools({4}, {0, 1, 0, 4});
  expectTensor(applyPredicate("And", a, b), {4}, {0, 0, 0, 1});
  expectTensor(applyPredicate("Or", a, b), {4}, {0, 1, 1, 1});
  expectTensor(applyPredicate("Xor", a, b), {4}, {0, 1, 1, 0});
  expectTensor(KernelCall("Not").in(a).run(), {4}, {1, 1, 0, 0});
  expectTensor(applyPredicate("And", a, bools({0, 4}, {})), {0, 4}, {});
  expectError(applyPredicate("And", floats({1}, {1}), floats({1}, {1})), "element type float");
}

TEST(Predicates, NanAndInfinity) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16}) {
    const TestTensor x(element, {4}, {kNan, kInfinity, -kInfinity, 1});
    expectTensor(KernelCall("IsNaN").in(x).run(), {4}, {1, 0, 0, 0});
    expectTensor(KernelCall("IsInf").in(x).run(), {4}, {0, 1, 1, 0});
    expectTensor(KernelCall("IsInf").in(x).attr("detect_negative", 0).run(), {4}, {0, 1, 0, 0});
  }
}

} // namespace
} // namespace kvopt
