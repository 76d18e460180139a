// Elementwise arithmetic: broadcasting, integer edge cases, 16-bit floats.
#include "runtime/kernels/support/broadcast.h"
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

KernelResult apply(const char* op, TestTensor a, TestTensor b) {
  return KernelCall(op).in(std::move(a)).in(std::move(b)).run();
}
KernelResult ints(const char* op, ElementType element, double a, double b) {
  return apply(op, {element, {1}, {a}}, {element, {1}, {b}});
}

TEST(Binary, Broadcasting) {
  const TestTensor column = floats({2, 1}, {10, 20});
  const TestTensor row = floats({3}, {1, 2, 4});
  expectTensor(apply("Add", column, row), {2, 3}, {11, 12, 14, 21, 22, 24});
  expectTensor(apply("Sub", row, column), {2, 3}, {-9, -8, -6, -19, -18, -16});
  expectTensor(apply("Mul", floats({}, {3}), row), {3}, {3, 6, 12});
  expectTensor(apply("Div", column, row), {2, 3}, {10, 5, 2.5, 20, 10, 5});
  expectTensor(apply("Add", floats({0, 1}, {}), row), {0, 3}, {});
  expectError(apply("Add", row, floats({2}, {1, 2})), "broadcast");
  expectError(apply("Add", row, int64s({1})), "different element types");
}

TEST(Binary, PiecesOfLargeTensors) {
  // Pieces begin within rows, and operands repeat along the first, the middle or all axes.
  const Extents shape = {3, 5, 1301};
  for (const ElementType element : {ElementType::Float, ElementType::Float16})
    for (const Extents& other :
         {shape, Extents{5, 1301}, Extents{3, 1, 1301}, Extents{5, 1}, Extents{}}) {
      const TestTensor a = randomTensor(element, shape, 1), b = randomTensor(element, other, 2);
      const Extents strides = kernels::broadcastStrides(b.view(), shape);
      std::vector<double> expected;
      for (int64_t i = 0; i < shape[0]; ++i)
        for (int64_t j = 0; j < shape[1]; ++j)
          for (int64_t k = 0; k < shape[2]; ++k)
            expected.push_back(a.get(static_cast<int64_t>(expected.size())) -
                               b.get(i * strides[0] + j * strides[1] + k * strides[2]));
      expectTensor(KernelCall("Sub").in(a).in(b).threads(3).run(), shape, expected,
                   element == ElementType::Float ? 1e-6 : 1e-3);
    }
}

TEST(Binary, Integers) {
  expectTensor(ints("Add", ElementType::Int32, 2147483647, 1), {1}, {-2147483648.0});
  expectTensor(ints("Mul", ElementType::Int8, 100, 3), {1}, {44});
  expectTensor(ints("Div", ElementType::Int64, -7, 2), {1}, {-3});
  expectTensor(ints("Div", ElementType::Int32, -2147483648.0, -1), {1}, {-2147483648.0});
  expectTensor(ints("Mod", ElementType::Int64, -7, 3), {1}, {2});
  expectTensor(ints("Mod", ElementType::Int64, 7, -3), {1}, {-2});
  expectTensor(ints("Mod", ElementType::Int64, -0x1p63, -1), {1}, {0});
  expectTensor(ints("Pow", ElementType::Int64, 3, 4), {1}, {81});
  expectTensor(ints("Pow", ElementType::Int32, -1, -3), {1}, {-1});
  expectError(ints("Div", ElementType::Int64, 1, 0), "integer division by zero");
  expectError(ints("Mod", ElementType::Int32, 1, 0), "integer division by zero");
  expectError(ints("Pow", ElementType::Int64, 0, -1), "zero to a negative power");
}

TEST(Binary, Floats) {
  expectTensor(ints("Add", ElementType::Float16, 2048, 1), {1}, {2048});
  expectTensor(ints("Mul", ElementType::BFloat16, 1.5, 1.5), {1}, {2.25});
  expectTensor(ints("Pow", ElementType::Float, 2, 0.5), {1}, {std::sqrt(2.0)}, 1e-6);
  expectTensor(apply("Pow", floats({2}, {3, -2}), int64s({2, 3})), {2}, {9, -8});
  expectTensor(KernelCall("Mod").in(floats({1}, {-7})).in(floats({1}, {3})).attr("fmod", 1).run(),
               {1}, {-1});
  expectError(ints("Mod", ElementType::Float, 1, 1), "fmod = 1");
}

TEST(Binary, MinAndMaxOfMany) {
  const KernelResult result = KernelCall("Max")
                                  .in(floats({2}, {1, 5}))
                                  .in(floats({1}, {2}))
                                  .in(floats({2, 1}, {0, 9}))
                                  .run();
  expectTensor(result, {2, 2}, {2, 5, 9, 9});
  expectTensor(KernelCall("Min").in(floats({2}, {1, 5})).run(), {2}, {1, 5});
  expectTensor(apply("Min", floats({2}, {kNan, 1}), floats({2}, {0, kNan})), {2}, {kNan, kNan});
}

} // namespace
} // namespace kvopt
