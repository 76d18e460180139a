// GatherND with and without batch axes.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
namespace {

KernelResult gatherNd(TestTensor data, TestTensor indices, int batchDims = 0) {
  return KernelCall("GatherND")
      .in(std::move(data))
      .in(std::move(indices))
      .attr("batch_dims", batchDims)
      .run();
}

TEST(GatherNd, ElementsSlicesAndBatches) {
  const TestTensor x = floats({2, 2}, {0, 1, 2, 3});
  const TestTensor cube = floats({2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  expectTensor(gatherNd(x, int64s({2, 2}, {0, 0, 1, -1})), {2}, {0, 3});
  expectTensor(gatherNd(x, int64s({2, 1}, {1, 0})), {2, 2}, {2, 3, 0, 1});
  expectTensor(gatherNd(cube, int64s({2, 1}, {1, 0}), 1), {2, 2}, {2, 3, 4, 5});
  expectTensor(gatherNd(cube, int64s({2, 1, 2}, {0, 1, 1, 0})), {2, 1, 2}, {2, 3, 4, 5});
  expectTensor(gatherNd(x, int64s({0, 2}, {})), {0}, {});
  expectTensor(gatherNd(bools({2}, {0, 1}), int64s({1, 1}, {1})), {1}, {1});
}

TEST(GatherNd, Refuses) {
  const TestTensor x = floats({2, 2}, {0, 1, 2, 3});
  expectError(gatherNd(x, int64s({1, 2}, {0, 2})), "index 2 is out of range");
  expectError(gatherNd(x, int64s({1, 3}, {0, 0, 0})), "index depth of 3");
  expectError(gatherNd(x, int64s({1, 0}, {})), "index depth of 0");
  expectError(gatherNd(x, int64s({1, 1}, {0}), 1), "batch axes");
  expectError(gatherNd(x, int64s({1}, {0}), 1), "batch_dims 1");
}

} // namespace
} // namespace kvopt
