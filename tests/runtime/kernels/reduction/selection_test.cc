// ArgMax, ArgMin, TopK, NonZero and OneHot.
#include "tests/runtime/kernels/kernel_harness.h"

#include <algorithm>
#include <numeric>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

TEST(ArgMax, AxesAndTies) {
  const TestTensor x = floats({2, 3}, {1, 5, 5, 7, 2, 2});
  auto run = [&](const char* op, int axis, int keep, int last) {
    return KernelCall(op)
        .in(x)
        .attr("axis", axis)
        .attr("keepdims", keep)
        .attr("select_last_index", last)
        .run();
  };
  expectTensor(run("ArgMax", 1, 1, 0), {2, 1}, {1, 0});
  expectTensor(run("ArgMax", 1, 0, 1), {2}, {2, 0});
  expectTensor(run("ArgMax", 0, 0, 0), {3}, {1, 0, 0});
  expectTensor(run("ArgMin", -1, 0, 0), {2}, {0, 1});
  expectTensor(run("ArgMin", -1, 0, 1), {2}, {0, 2});
  expectTensor(KernelCall("ArgMax").in(floats({3}, {1, kNan, 2})).attr("axis", 0).run(), {1}, {1});
  expectTensor(KernelCall("ArgMax").in({ElementType::Float16, {2}, {1, 2}}).run(), {1}, {1});
  expectTensor(KernelCall("ArgMin").in(int64s({3, -1})).run(), {1}, {1});
  expectError(run("ArgMax", 2, 0, 0), "axis 2");
  expectError(KernelCall("ArgMax").in(floats({0}, {})).run(), "without elements");
  expectTensor(KernelCall("ArgMax").in(floats({2, 0}, {})).run(), {1, 0}, {});
}

TEST(TopK, AgainstASort) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::Int64})
    for (int axis : {0, 1, 2})
      for (int largest : {0, 1})
        for (int64_t k : {0, 1, 3}) {
          const TestTensor x = randomTensor(element, {3, 4, 5}, 1, 3);
          Extents shape = x.shape();
          const int64_t length = shape[size_t(axis)];
          const int64_t stride = contiguousStrides(shape)[size_t(axis)];
          shape[size_t(axis)] = k;
          std::vector<double> values(size_t(60 / length * k)), indices(values.size());
          for (int64_t line = 0; line < 60 / length; ++line) {
            std::vector<int64_t> order(static_cast<size_t>(length));
            std::iota(order.begin(), order.end(), 0);
            const int64_t first = line / stride * stride * length + line % stride;
            std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
              const double left = x.get(first + a * stride);
              const double right = x.get(first + b * stride);
              return largest != 0 ? left > right : left < right;
            });
            for (int64_t i = 0; i < k; ++i) {
              const auto to = size_t(line / stride * stride * k + line % stride + i * stride);
              indices[to] = double(order[size_t(i)]);
              values[to] = x.get(first + order[size_t(i)] * stride);
            }
          }
          KernelCall call("TopK");
          call.in(x).in(int64s({double(k)})).attr("axis", axis).attr("largest", largest);
          const KernelResult result = call.results(2).run();
          expectTensor(result, shape, values);
          expectTensor(result, shape, indices, 0, 1);
          expectTensor(call.unread(0).run(), shape, indices, 0, 1);
        }
  expectError(KernelCall("TopK").in(floats({2}, {1, 2})).in(int64s({3})).run(), "3 of 2");
  expectError(KernelCall("TopK").in(floats({2}, {1, 2})).in(int64s({-1})).run(), "-1 of 2");
}

TEST(NonZero, Coordinates) {
  expectTensor(KernelCall("NonZero").in(floats({2, 3}, {0, 1, 0, kNan, 0, -2})).run(), {2, 3},
               {0, 1, 1, 1, 0, 2});
  expectTensor(KernelCall("NonZero").in(bools({3}, {1, 0, 1})).run(), {1, 2}, {0, 2});
  expectTensor(KernelCall("NonZero").in(int64s({0, 0})).run(), {1, 0}, {});
  expectTensor(KernelCall("NonZero").in(floats({}, {3})).run(), {1, 1}, {0});
  expectTensor(KernelCall("NonZero").in(floats({0, 2}, {})).run(), {2, 0}, {});
}

TEST(OneHot, Axes) {
  auto run = [](TestTensor indices, TestTensor depth, int axis) {
    return KernelCall("OneHot")
        .in(std::move(indices))
        .in(std::move(depth))
        .in(floats({2}, {2, 5}))
        .attr("axis", axis)
        .run();
  };
  expectTensor(run(int64s({1, -1, 3}), int64s({3}), -1), {3, 3}, {2, 5, 2, 2, 2, 5, 2, 2, 2});
  expectTensor(run(int64s({1, 0}), int64s({3}), 0), {3, 2}, {2, 5, 5, 2, 2, 2});
  expectTensor(run(floats({1}, {1}), floats({}, {2}), -1), {1, 2}, {2, 5});
  expectTensor(run(int64s({}), int64s({3}), -1), {0, 3}, {});
  expectError(run(int64s({0}), int64s({-1}), -1), "depth must be");
  EXPECT_FALSE(run(int64s({0}), int64s({1e15}), -1).ok());
}

} // namespace
} // namespace kvopt
