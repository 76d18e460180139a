// What every attention operator shares: checks of operands, and independence of threads.
#include "tests/runtime/kernels/attention_case.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

TestTensor random(Extents shape, ElementType element = ElementType::Float) {
  return randomTensor(element, std::move(shape), 5);
}

KernelResult sdpa(TestTensor q, TestTensor k, TestTensor v, unsigned threads = 1) {
  return KernelCall("ai.kvopt::Sdpa")
      .in(std::move(q))
      .in(std::move(k))
      .in(std::move(v))
      .attr("scale", 0.5)
      .attr("causal", 1)
      .threads(threads)
      .run();
}

TEST(AttentionCall, ThreadsDoNotChangeABit) {
  const TestTensor q = random({2, 6, 40, 16}), k = random({2, 2, 70, 16}),
                   v = random({2, 2, 70, 8});
  const KernelResult one = sdpa(q, k, v);
  ASSERT_EQ(one.error, "");
  for (unsigned threads : {2u, 3u, 64u}) {
    const KernelResult many = sdpa(q, k, v, threads);
    ASSERT_EQ(many.error, "");
    EXPECT_TRUE(one.outputs[0].sameBytes(many.outputs[0]));
  }
}

/// A cache may be stored narrower than the query; the result has the query's type.
TEST(AttentionCall, QueryAndCacheTypesMayDiffer) {
  const KernelResult mixed = sdpa(random({1, 1, 2, 8}), random({1, 1, 3, 8}, ElementType::BFloat16),
                                  random({1, 1, 3, 8}, ElementType::BFloat16));
  ASSERT_EQ(mixed.error, "");
  EXPECT_EQ(mixed.outputs[0].element(), ElementType::Float);
}

TEST(AttentionCall, Empty) {
  const TestTensor q = random({1, 1, 2, 8});
  expectTensor(sdpa(q, random({1, 1, 0, 8}), random({1, 1, 0, 3})), {1, 1, 2, 3},
               {0, 0, 0, 0, 0, 0});
  expectTensor(sdpa(random({1, 1, 0, 8}), random({1, 1, 2, 8}), random({1, 1, 2, 3})), {1, 1, 0, 3},
               {});
}

TEST(AttentionCall, Refuses) {
  const TestTensor q = random({1, 2, 2, 8}), k = random({1, 1, 3, 8}), v = random({1, 1, 3, 8});
  expectError(sdpa(random({2, 2, 8}), k, v), "must have rank 4");
  expectError(sdpa(q, k, random({1, 1, 4, 8})), "3 key rows and 4 value rows");
  expectError(sdpa(q, k, random({1, 2, 3, 8})), "1 key heads and 2 value heads");
  expectError(sdpa(q, random({2, 1, 3, 8}), v), "batch sizes 1, 2 and 1");
  expectError(sdpa(q, random({1, 1, 3, 4}), v), "query width 8 and key width 4");
  expectError(sdpa(random({1, 3, 2, 8}), random({1, 2, 3, 8}), random({1, 2, 3, 8})),
              "3 query heads are not a multiple of 2");
  expectError(sdpa(q, random({1, 0, 3, 8}), random({1, 0, 3, 8})), "not a multiple of 0");
  expectError(sdpa(random({1, 2, 2, 0}), random({1, 1, 3, 0}), v), "head width of 0");
  expectError(sdpa(q, k, random({1, 1, 3, 8}, ElementType::Float16)), "element types");
}

} // namespace
} // namespace kvopt
