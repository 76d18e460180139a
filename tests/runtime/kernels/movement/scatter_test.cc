// ScatterElements and ScatterND against ONNX's own examples and plain loops.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

KernelCall scatterElements(TestTensor data, TestTensor indices, TestTensor updates) {
  KernelCall call("ScatterElements");
  call.in(std::move(data)).in(std::move(indices)).in(std::move(updates));
  return call;
}

TEST(ScatterElements, WritesAlongTheAxis) {
  const TestTensor data = floats({3, 3}, {0, 0, 0, 0, 0, 0, 0, 0, 0});
  const TestTensor indices = int64s({2, 3}, {1, 0, 2, 0, 2, 1});
  const TestTensor updates = floats({2, 3}, {1, 1.1, 1.2, 2, 2.1, 2.2});
  expectTensor(scatterElements(data, indices, updates).run(), {3, 3},
               {2, 1.1, 0, 1, 0, 2.2, 0, 2.1, 1.2}, 1e-6);
  expectTensor(scatterElements(floats({1, 5}, {1, 2, 3, 4, 5}), int64s({1, 2}, {1, -2}),
                               floats({1, 2}, {1.5, 2.5}))
                   .attr("axis", -1)
                   .run(),
               {1, 5}, {1, 1.5, 3, 2.5, 5});
  // The data stays what it was.
  EXPECT_TRUE(data.sameBytes(floats({3, 3}, {0, 0, 0, 0, 0, 0, 0, 0, 0})));
}

TEST(ScatterElements, Reductions) {
  const TestTensor indices = int64s({1, 3}, {1, 1, 0});
  auto reduce = [&](const char* reduction) {
    return scatterElements(floats({1, 3}, {1, 2, 3}), indices, floats({1, 3}, {4, -5, 6}))
        .attr("axis", 1)
        .attr("reduction", reduction)
        .run();
  };
  expectTensor(reduce("add"), {1, 3}, {7, 1, 3});
  expectTensor(reduce("mul"), {1, 3}, {6, -40, 3});
  expectTensor(reduce("max"), {1, 3}, {6, 4, 3});
  expectTensor(reduce("min"), {1, 3}, {1, -5, 3});
  expectError(reduce("mean"), "reduction 'mean' is not known");
  expectTensor(scatterElements({ElementType::Float16, {2}, {1, 2}}, int64s({0, 0}),
                               {ElementType::Float16, {2}, {0.5, 0.25}})
                   .attr("reduction", "add")
                   .run(),
               {2}, {1.75, 2});
  expectTensor(
      scatterElements({ElementType::Int8, {1}, {127}}, int64s({0}), {ElementType::Int8, {1}, {1}})
          .attr("reduction", "add")
          .run(),
      {1}, {-128});
}

TEST(ScatterElements, Empty) {
  expectTensor(scatterElements(floats({2}, {1, 2}), int64s({0}, {}), floats({0}, {})).run(), {2},
               {1, 2});
  expectTensor(scatterElements(floats({0, 2}, {}), int64s({0, 2}, {}), floats({0, 2}, {})).run(),
               {0, 2}, {});
}

TEST(ScatterElements, Refuses) {
  const TestTensor data = floats({2, 2}, {1, 2, 3, 4});
  expectError(scatterElements(data, int64s({1, 1}, {2}), floats({1, 1}, {0})).run(),
              "index 2 is out of range");
  expectError(scatterElements(data, int64s({1, 1}, {-3}), floats({1, 1}, {0})).run(),
              "index -3 is out of range");
  expectError(scatterElements(data, int64s({1, 1}, {0}), floats({1, 2}, {0, 0})).run(),
              "differ in shape");
  expectError(scatterElements(data, int64s({1}, {0}), floats({1}, {0})).run(), "rank");
  expectError(scatterElements(data, int64s({1, 3}, {0, 0, 0}), floats({1, 3}, {0, 0, 0})).run(),
              "more than 2");
  expectError(scatterElements(data, int64s({1, 1}, {0}), {ElementType::Double, {1, 1}, {0}}).run(),
              "different element types");
}

KernelCall scatterNd(TestTensor data, TestTensor indices, TestTensor updates) {
  KernelCall call("ScatterND");
  call.in(std::move(data)).in(std::move(indices)).in(std::move(updates));
  return call;
}

TEST(ScatterNd, ElementsAndSlices) {
  expectTensor(scatterNd(floats({8}, {1, 2, 3, 4, 5, 6, 7, 8}), int64s({4, 1}, {4, 3, 1, -1}),
                         floats({4}, {9, 10, 11, 12}))
                   .run(),
               {8}, {1, 11, 3, 10, 9, 6, 7, 12});
  expectTensor(scatterNd(floats({3, 2}, {1, 2, 3, 4, 5, 6}), int64s({2, 1}, {2, 0}),
                         floats({2, 2}, {7, 8, 9, 10}))
                   .run(),
               {3, 2}, {9, 10, 3, 4, 7, 8});
  expectTensor(scatterNd(floats({2, 2}, {1, 2, 3, 4}), int64s({2}, {1, -2}), floats({}, {9})).run(),
               {2, 2}, {1, 2, 9, 4});
  expectTensor(scatterNd(int64s({3}, {1, 2, 3}), int64s({3, 1}, {0, 0, 2}), int64s({5, 6, 7}))
                   .attr("reduction", "add")
                   .run(),
               {3}, {12, 2, 10});
  expectTensor(scatterNd(floats({2}, {1, 2}), int64s({0, 1}, {}), floats({0}, {})).run(), {2},
               {1, 2});
}

TEST(ScatterNd, Refuses) {
  const TestTensor data = floats({2, 2}, {1, 2, 3, 4});
  expectError(scatterNd(data, int64s({1, 1}, {2}), floats({1, 2}, {0, 0})).run(),
              "index 2 is out of range");
  expectError(scatterNd(data, int64s({1, 1}, {0}), floats({1}, {0})).run(), "another shape");
  expectError(scatterNd(data, int64s({1, 3}, {0, 0, 0}), floats({1}, {0})).run(), "index depth");
  expectError(scatterNd(data, int64s({1, 0}, {}), floats({1, 2, 2}, {0, 0, 0, 0})).run(),
              "index depth");
}

} // namespace
} // namespace kvopt
