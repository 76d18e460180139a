// com.microsoft::FusedMatMul against a double loop.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

TEST(FusedMatMul, Formula) {
  for (ElementType element : {ElementType::Float, ElementType::Float16})
    for (bool transA : {false, true})
      for (bool transB : {false, true}) {
        SCOPED_TRACE(formatted("{} {} {}", int(element), transA, transB));
        const TestTensor a =
            randomTensor(element, transA ? Extents{2, 3, 5, 4} : Extents{2, 3, 4, 5}, 1);
        const TestTensor b = randomTensor(element, transB ? Extents{3, 6, 5} : Extents{3, 5, 6}, 2);
        std::vector<double> expected;
        for (int64_t batch = 0; batch < 6; ++batch)
          for (int64_t m = 0; m < 4; ++m)
            for (int64_t n = 0; n < 6; ++n) {
              double sum = 0;
              for (int64_t k = 0; k < 5; ++k)
                sum += a.get(batch * 20 + (transA ? k * 4 + m : m * 5 + k)) *
                       b.get(batch % 3 * 30 + (transB ? n * 5 + k : k * 6 + n));
              expected.push_back(0.25 * sum);
            }
        expectTensor(KernelCall("com.microsoft::FusedMatMul")
                         .in(a)
                         .in(b)
                         .attr("alpha", 0.25)
                         .attr("transA", transA ? 1 : 0)
                         .attr("transB", transB ? 1 : 0)
                         .threads(2)
                         .run(),
                     {2, 3, 4, 6}, expected, element == ElementType::Float ? 1e-6 : 2e-3);
      }
}

TEST(FusedMatMul, Refuses) {
  const TestTensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  auto run = [&](const TestTensor& b, const char* attribute) {
    return KernelCall("com.microsoft::FusedMatMul").in(x).in(b).attr(attribute, 1).run();
  };
  expectTensor(run(x, "transA"), {3, 3}, {17, 22, 27, 22, 29, 36, 27, 36, 45});
  expectError(run(floats({2, 2}, {1, 2, 3, 4}), "transB"), "inner extents 3 and 2");
  expectError(run(floats({3}, {1, 2, 3}), "transB"), "not a matrix");
}

TEST(FusedMatMul, RowsFirst) {
  // a[M,batch,K] and b[N,batch,K].
  const TestTensor a = randomTensor(ElementType::Float, {4, 3, 5}, 1);
  const TestTensor b = randomTensor(ElementType::Float, {6, 3, 5}, 2);
  std::vector<double> expected;
  for (int64_t batch = 0; batch < 3; ++batch)
    for (int64_t m = 0; m < 4; ++m)
      for (int64_t n = 0; n < 6; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < 5; ++k)
          sum += a.get((m * 3 + batch) * 5 + k) * b.get((n * 3 + batch) * 5 + k);
        expected.push_back(sum);
      }
  expectTensor(KernelCall("com.microsoft::FusedMatMul")
                   .in(a)
                   .in(b)
                   .attr("transBatchA", 1)
                   .attr("transBatchB", 1)
                   .attr("transB", 1)
                   .run(),
               {3, 4, 6}, expected, 1e-6);
}

} // namespace
} // namespace kvopt
