// TensorScatter against its formula.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

KernelCall scatter(const TestTensor& past, const TestTensor& update,
                   const std::vector<double>& indices, const char* mode) {
  KernelCall call("TensorScatter", 24);
  call.in(past).in(update);
  if (!indices.empty())
    call.in(int64s(indices));
  call.attr("mode", mode);
  return call;
}

TEST(TensorScatter, Formula) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::Int8})
    for (const char* mode : {"linear", "circular"})
      for (int axis : {1, 2, 3, -2})
        for (const std::vector<double>& indices : {std::vector<double>{}, {2, 0}, {3, 1}}) {
          SCOPED_TRACE(formatted("mode {} axis {} indices {}", mode, axis, indices.size()));
          const unsigned at = axis < 0 ? 2 : unsigned(axis);
          Extents shape{2, 3, 4, 5};
          shape[at] = 6;
          Extents fresh = shape;
          fresh[at] = 3;
          const TestTensor past = randomTensor(element, shape, 1, 100);
          const TestTensor update = randomTensor(element, fresh, 2, 100);
          std::vector<double> expected = past.values();
          const Extents strides = contiguousStrides(shape);
          for (int64_t i = 0; i < update.count(); ++i) {
            int64_t rest = i, offset = 0;
            int64_t index[4];
            for (unsigned d = 4; d > 0; --d) {
              index[d - 1] = rest % fresh[d - 1];
              rest /= fresh[d - 1];
            }
            index[at] = (index[at] + int64_t(indices.empty() ? 0 : indices[size_t(index[0])])) % 6;
            for (unsigned d = 0; d < 4; ++d)
              offset += index[d] * strides[d];
            expected[size_t(offset)] = update.get(i);
          }
          expectTensor(scatter(past, update, indices, mode).attr("axis", axis).run(), shape,
                       expected);
        }
}

/// Circular places wrap around, and start anywhere.
TEST(TensorScatter, Wraps) {
  const TestTensor past = floats({2, 4, 1}, {0, 1, 2, 3, 4, 5, 6, 7});
  const TestTensor update = floats({2, 3, 1}, {10, 11, 12, 13, 14, 15});
  expectTensor(scatter(past, update, {2, 7}, "circular").run(), {2, 4, 1},
               {12, 1, 10, 11, 14, 15, 6, 13});
}

TEST(TensorScatter, WritesTheNewRowsOnly) {
  const TestTensor past = floats({1, 2, 3, 1}, {0, 1, 2, 3, 4, 5});
  const TestTensor update = floats({1, 2, 1, 1}, {7, 8});
  for (bool isOverwritable : {true, false}) {
    KernelCall call("TensorScatter", 24);
    call.in(past, isOverwritable).in(update).in(int64s({1}));
    const KernelResult result = call.run();
    expectTensor(result, {1, 2, 3, 1}, {0, 7, 2, 3, 8, 5});
    EXPECT_EQ(result.cacheBytesWritten, 2 * 4);
  }
}

TEST(TensorScatter, EmptyAndRefused) {
  const TestTensor past = floats({1, 2, 1}, {0, 1});
  const TestTensor one = floats({1, 1, 1}, {7});
  expectTensor(scatter(past, TestTensor(ElementType::Float, {1, 0, 1}), {2}, "linear").run(),
               {1, 2, 1}, {0, 1});
  expectError(scatter(past, one, {2}, "linear").run(), "do not fit");
  expectError(scatter(past, one, {-1}, "linear").run(), "do not fit");
  expectError(scatter(past, one, {-1}, "circular").run(), "do not fit");
  expectError(scatter(past, floats({1, 3, 1}, {1, 2, 3}), {}, "circular").run(), "3 rows");
  expectError(scatter(past, one, {0, 0}, "linear").run(), "one number per batch row");
  expectError(scatter(past, one, {0}, "else").run(), "mode 'else'");
  expectError(scatter(past, one, {0}, "linear").attr("axis", 0).run(), "batch axis");
  expectError(scatter(past, floats({1, 1, 2}, {1, 2}), {0}, "linear").run(), "update must be");
}

} // namespace
} // namespace kvopt
