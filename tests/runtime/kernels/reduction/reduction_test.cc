// Reductions over axes given by attribute or operand.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

TEST(Reduction, AxesAsOperandAndAttribute) {
  const TestTensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  auto byOperand = [&](const char* op, llvm::ArrayRef<double> axes, int keep) {
    return KernelCall(op, 18).in(x).in(int64s(axes)).attr("keepdims", keep).run();
  };
  auto byAttribute = [&](const char* op, int64_t axis, int64_t opset) {
    return KernelCall(op, opset).in(x).attr("axes", std::vector<int64_t>{axis}).run();
  };
  expectTensor(byOperand("ReduceSum", {1}, 1), {2, 1}, {6, 15});
  expectTensor(byOperand("ReduceSum", {-2}, 0), {3}, {5, 7, 9});
  expectTensor(byOperand("ReduceSum", {0, 1}, 0), {}, {21});
  expectTensor(byOperand("ReduceMean", {1}, 0), {2}, {2, 5});
  expectTensor(byOperand("ReduceMax", {1}, 0), {2}, {3, 6});
  expectTensor(byOperand("ReduceMin", {0}, 0), {3}, {1, 2, 3});
  expectTensor(byOperand("ReduceProd", {1}, 0), {2}, {6, 120});
  expectTensor(byAttribute("ReduceMax", -1, 13), {2, 1}, {3, 6});
  expectTensor(byAttribute("ReduceSum", 0, 11), {1, 3}, {5, 7, 9});
  expectTensor(byAttribute("ReduceMean", 1, 17), {2, 1}, {2, 5});
  expectError(byOperand("ReduceSum", {2}, 1), "axis 2");
  expectError(byOperand("ReduceSum", {1, -1}, 1), "named twice");
}

TEST(Reduction, NoAxes) {
  const TestTensor x = floats({2, 2}, {1, 2, 3, 4});
  expectTensor(KernelCall("ReduceSum").in(x).run(), {1, 1}, {10});
  expectTensor(KernelCall("ReduceMax").in(x).absent().attr("keepdims", 0).run(), {}, {4});
  expectTensor(KernelCall("ReduceMean").in(x).in(int64s({})).run(), {1, 1}, {2.5});
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax"})
    expectTensor(KernelCall(op).in(x).attr("noop_with_empty_axes", 1).run(), {2, 2}, {1, 2, 3, 4});
}

TEST(Reduction, Norms) {
  const TestTensor x = floats({2, 2}, {3, -4, 1, -2});
  auto run = [](const char* op, const TestTensor& of) {
    return KernelCall(op).in(of).in(int64s({1})).attr("keepdims", 0).run();
  };
  expectTensor(run("ReduceL1", x), {2}, {7, 3});
  expectTensor(run("ReduceSumSquare", x), {2}, {25, 5});
  expectTensor(run("ReduceL2", x), {2}, {5, std::sqrt(5.0)}, 1e-7);
  expectTensor(run("ReduceL1", int64s({1, 2}, {-3, -4})), {1}, {7});
  expectTensor(run("ReduceL2", {ElementType::Float16, {1, 2}, {300, 400}}), {1}, {500});
}

TEST(Reduction, LongRows) {
  const TestTensor x = randomTensor(ElementType::Float, {37, 1003}, 1);
  std::vector<double> means, squares, largest;
  for (int64_t row = 0; row < 37; ++row) {
    double sum = 0, square = 0, most = -1;
    for (int64_t i = 0; i < 1003; ++i) {
      const double value = x.get(row * 1003 + i);
      sum += value;
      square += value * value;
      most = std::max(most, value);
    }
    means.push_back(sum / 1003);
    squares.push_back(square);
    largest.push_back(most);
  }
  const auto over = [&](const char* op) {
    return KernelCall(op).in(x).in(int64s({1})).attr("keepdims", 0).threads(3).run();
  };
  expectTensor(over("ReduceMean"), {37}, means, 1e-6);
  expectTensor(over("ReduceSumSquare"), {37}, squares, 1e-4);
  expectTensor(over("ReduceMax"), {37}, largest);
}

TEST(Reduction, EmptyExtents) {
  auto run = [](const char* op, Extents shape, int axis) {
    return KernelCall(op).in(floats(shape, {})).in(int64s({double(axis)})).run();
  };
  expectTensor(run("ReduceSum", {2, 0}, 1), {2, 1}, {0, 0});
  expectTensor(run("ReduceProd", {2, 0}, 1), {2, 1}, {1, 1});
  expectTensor(run("ReduceMax", {2, 0}, 1), {2, 1}, {-kInfinity, -kInfinity});
  expectTensor(run("ReduceMin", {1, 0}, 1), {1, 1}, {kInfinity});
  expectTensor(run("ReduceMean", {1, 0}, 1), {1, 1}, {kNan});
  expectTensor(run("ReduceSum", {2, 0}, 0), {1, 0}, {});
  expectTensor(KernelCall("ReduceMax").in({ElementType::Int32, {0}, {}}).in(int64s({0})).run(), {1},
               {-2147483648.0});
}

TEST(Reduction, ElementTypes) {
  auto run = [](const char* op, TestTensor x) { return KernelCall(op).in(std::move(x)).run(); };
  expectTensor(run("ReduceMax", floats({3}, {1, kNan, 2})), {1}, {kNan});
  expectTensor(run("ReduceMin", floats({3}, {kNan, 1, 2})), {1}, {kNan});
  expectTensor(run("ReduceMax", floats({2}, {-kInfinity, -kInfinity})), {1}, {-kInfinity});
  // Sums go on in a wider type.
  expectTensor(run("ReduceSum", {ElementType::Float16, {3}, {2048, 1, 1}}), {1}, {2050});
  expectTensor(run("ReduceSum", {ElementType::BFloat16, {3}, {256, 1, 1}}), {1}, {258});
  expectTensor(run("ReduceSum", floats({3}, {16777216, 1, 1})), {1}, {16777218});
  expectTensor(run("ReduceMean", {ElementType::Int32, {2}, {2147483647, 2147483645}}), {1},
               {2147483646});
  expectTensor(run("ReduceMean", int64s({-3, -4})), {1}, {-3});
  expectTensor(run("ReduceSum", {ElementType::Int32, {2}, {2147483647, 1}}), {1}, {-2147483648.0});
  expectTensor(run("ReduceMax", {ElementType::UInt8, {2}, {200, 3}}), {1}, {200});
  expectError(run("ReduceSum", bools({1}, {1})), "element type bool");
}

} // namespace
} // namespace kvopt
