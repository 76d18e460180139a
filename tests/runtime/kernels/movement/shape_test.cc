// Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze, Identity.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

TestTensor ofShape(Extents shape) { return {ElementType::Float, std::move(shape)}; }

/// Expects a view of the operand's memory under another shape.
void expectView(const KernelResult& result, const TestTensor& x, Extents shape) {
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(result.outputs[0].shape(), shape);
  EXPECT_EQ(result.outputs[0].data(), x.data());
}

TEST(Shape, StartAndEnd) {
  const TestTensor x = ofShape({2, 0, 5});
  auto run = [&](int start, int end) {
    return KernelCall("Shape").in(x).attr("start", start).attr("end", end).run();
  };
  expectTensor(KernelCall("Shape").in(x).run(), {3}, {2, 0, 5});
  expectTensor(run(1, -1), {1}, {0});
  expectTensor(run(-2, 9), {2}, {0, 5});
  expectTensor(run(2, 1), {0}, {});
  expectTensor(KernelCall("Shape").in(ofShape({})).run(), {0}, {});
  expectTensor(KernelCall("Size").in(x).run(), {}, {0});
  expectTensor(KernelCall("Size").in(ofShape({2, 3})).run(), {}, {6});
  expectView(KernelCall("Identity").in(x).run(), x, {2, 0, 5});
}

TEST(Reshape, ZeroAndMinusOne) {
  struct Row {
    Extents from;
    std::vector<double> target;
    int allowZero;
    Extents to;
  };
  for (const Row& row : std::initializer_list<Row>{{{2, 3}, {3, 2}, 0, {3, 2}},
                                                   {{2, 3}, {-1}, 0, {6}},
                                                   {{2, 3}, {0, -1, 1}, 0, {2, 3, 1}},
                                                   {{}, {1, -1}, 0, {1, 1}},
                                                   {{1}, {}, 0, {}},
                                                   {{0, 3}, {0, 3}, 0, {0, 3}},
                                                   {{0, 3}, {3, 0}, 1, {3, 0}},
                                                   {{0, 3}, {5, 0}, 1, {5, 0}},
                                                   {{0, 3}, {-1, 3}, 0, {0, 3}},
                                                   {{2, 0, 4}, {0, -1, 2}, 0, {2, 0, 2}}}) {
    const TestTensor x = ofShape(row.from);
    expectView(
        KernelCall("Reshape").in(x).in(int64s(row.target)).attr("allowzero", row.allowZero).run(),
        x, row.to);
  }
}

TEST(Reshape, Refuses) {
  auto run = [](Extents from, llvm::ArrayRef<double> target, int allowZero = 0) {
    return KernelCall("Reshape")
        .in(ofShape(std::move(from)))
        .in(int64s(target))
        .attr("allowzero", allowZero)
        .run();
  };
  expectError(run({2, 3}, {4}), "target [4] does not hold 6 elements");
  expectError(run({2, 3}, {4, -1}), "-1 cannot be inferred for 6 elements");
  expectError(run({0, 3}, {0, -1}), "-1 cannot be inferred for 0 elements");
  expectError(run({0, 3}, {0, -1}, 1), "-1 cannot be inferred for 0 elements");
  expectError(run({2, 3}, {-1, -1}), "bad extent");
  expectError(run({2, 3}, {-2, 3}), "bad extent");
  expectError(run({6}, {6, 0}), "axis 1 is not in the input");
  EXPECT_FALSE(run({2}, {0x1p40, 0x1p40}).ok());
}

TEST(Flatten, Axes) {
  auto run = [](const TestTensor& x, int axis) {
    return KernelCall("Flatten").in(x).attr("axis", axis).run();
  };
  const TestTensor x = ofShape({2, 3, 4});
  expectView(KernelCall("Flatten").in(x).run(), x, {2, 12});
  expectView(run(x, 0), x, {1, 24});
  expectView(run(x, 3), x, {24, 1});
  expectView(run(x, -1), x, {6, 4});
  const TestTensor empty = ofShape({2, 0, 4});
  expectView(run(empty, 1), empty, {2, 0});
  expectView(run(empty, 2), empty, {0, 4});
  expectError(run(x, 4), "axis 4 is out of range");
  expectError(run(x, -4), "axis -4 is out of range");
}

TEST(Squeeze, AxesAsOperandAndAttribute) {
  const TestTensor x = ofShape({1, 3, 1});
  expectView(KernelCall("Squeeze").in(x).run(), x, {3});
  expectView(KernelCall("Squeeze").in(x).in(int64s({-1})).run(), x, {1, 3});
  expectView(KernelCall("Squeeze", 11).in(x).attr("axes", std::vector<int64_t>{0}).run(), x,
             {3, 1});
  expectError(KernelCall("Squeeze").in(x).in(int64s({1})).run(), "axis 1 has extent 3, not 1");
}

TEST(Unsqueeze, AxesAsOperandAndAttribute) {
  const TestTensor x = ofShape({2, 0});
  expectView(KernelCall("Unsqueeze").in(x).in(int64s({0, -1})).run(), x, {1, 2, 0, 1});
  expectView(KernelCall("Unsqueeze", 11).in(x).attr("axes", std::vector<int64_t>{1}).run(), x,
             {2, 1, 0});
  expectError(KernelCall("Unsqueeze").in(x).in(int64s({0, 0})).run(), "named twice");
  expectError(KernelCall("Unsqueeze").in(x).in(int64s({3})).run(), "axis 3");
  expectError(KernelCall("Unsqueeze", 11).in(x).run(), "axes are missing");
}

} // namespace
} // namespace kvopt
