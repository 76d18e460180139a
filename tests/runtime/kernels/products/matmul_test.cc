// MatMul against a plain double loop.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

KernelResult matMul(const TestTensor& a, const TestTensor& b, unsigned threads = 1) {
  return KernelCall("MatMul").in(a).in(b).threads(threads).run();
}

/// C = A B of one matrix pair, in double.
std::vector<double> product(const TestTensor& a, const TestTensor& b, int64_t aAt, int64_t bAt,
                            int64_t m, int64_t k, int64_t n) {
  std::vector<double> c;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t x = 0; x < k; ++x)
        sum += a.get(aAt + i * k + x) * b.get(bAt + x * n + j);
      c.push_back(sum);
    }
  return c;
}

TEST(MatMul, SizesAndElementTypes) {
  for (ElementType element :
       {ElementType::Float, ElementType::Float16, ElementType::BFloat16, ElementType::Double})
    for (int64_t m : {1, 3, 17})
      for (int64_t k : {1, 8, 65})
        for (int64_t n : {1, 5, 1030}) {
          const TestTensor a = randomTensor(element, {m, k}, 1);
          const TestTensor b = randomTensor(element, {k, n}, 2);
          const double accumulated = static_cast<double>(k * k) * 0x1p-23;
          const double rounded = element == ElementType::Float16    ? 0x1p-11
                                 : element == ElementType::BFloat16 ? 0x1p-8
                                                                    : 0;
          const double tolerance =
              element == ElementType::Double ? 1e-13 : accumulated + rounded * double(k);
          SCOPED_TRACE(formatted("{} {} {} {}", onnxName(element).str(), m, k, n));
          expectTensor(matMul(a, b, 3), {m, n}, product(a, b, 0, 0, m, k, n), tolerance);
        }
}

TEST(MatMul, BatchAxesBroadcast) {
  const TestTensor a = randomTensor(ElementType::Float, {2, 1, 3, 4}, 1);
  const TestTensor b = randomTensor(ElementType::Float, {5, 4, 2}, 2);
  std::vector<double> expected;
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 5; ++j)
      for (double value : product(a, b, i * 12, j * 8, 3, 4, 2))
        expected.push_back(value);
  expectTensor(matMul(a, b), {2, 5, 3, 2}, expected, 1e-5);
  const TestTensor right = randomTensor(ElementType::Float, {4, 2}, 3);
  expectTensor(matMul(a, right), {2, 1, 3, 2}, product(a, right, 0, 0, 6, 4, 2), 1e-5);
}

TEST(MatMul, VectorsDropTheirAxis) {
  const TestTensor v = floats({2}, {1, 2});
  const TestTensor m = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expectTensor(matMul(v, m), {3}, {9, 12, 15});
  expectTensor(matMul(floats({3, 2}, {1, 2, 3, 4, 5, 6}), v), {3}, {5, 11, 17});
  expectTensor(matMul(v, v), {}, {5});
  expectTensor(matMul(floats({2, 1, 2}, {1, 2, 3, 4}), v), {2, 1}, {5, 11});
  expectTensor(matMul(v, floats({2, 2, 1}, {1, 2, 3, 4})), {2, 1}, {5, 11});
}

TEST(MatMul, EmptyExtents) {
  expectTensor(matMul(floats({2, 0}, {}), floats({0, 3}, {})), {2, 3}, {0, 0, 0, 0, 0, 0});
  expectTensor(matMul(floats({0, 2}, {}), floats({2, 3}, {0, 0, 0, 0, 0, 0})), {0, 3}, {});
  expectTensor(matMul(floats({0, 1, 2}, {}), floats({1, 2, 1}, {0, 0})), {0, 1, 1}, {});
  // Huge extents beside a zero neither loop nor allocate.
  const int64_t huge = int64_t{1} << 40;
  expectTensor(matMul(floats({huge, 1, 0}, {}), floats({huge, 0, 0}, {})), {huge, 1, 0}, {});
  expectError(matMul(floats({huge, 1, 0}, {}), floats({1, 0, 1}, {})), "memory is short");
}

TEST(MatMul, IntegersWrap) {
  const TestTensor a(ElementType::Int32, {1, 2}, {65536, 3});
  const TestTensor b(ElementType::Int32, {2, 1}, {65536, 4});
  expectTensor(matMul(a, b), {1, 1}, {12});
}

TEST(MatMul, Refuses) {
  const TestTensor m = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expectError(matMul(m, m), "inner extents 3 and 2 differ");
  expectError(matMul(floats({}, {1}), m), "a scalar operand");
  expectError(matMul(floats({2, 1, 1}, {1, 2}), floats({3, 1, 1}, {1, 2, 3})), "broadcast");
  expectError(matMul(m, {ElementType::Double, {3, 1}, {1, 2, 3}}), "different element types");
}

} // namespace
} // namespace kvopt
