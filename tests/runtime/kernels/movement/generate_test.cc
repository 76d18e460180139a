// ConstantOfShape and Range.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

TEST(ConstantOfShape, Values) {
  expectTensor(KernelCall("ConstantOfShape").in(int64s({2, 2})).run(), {2, 2}, {0, 0, 0, 0});
  expectTensor(KernelCall("ConstantOfShape")
                   .in(int64s({3}))
                   .attr("value", Attribute::ofTensor(int64Tensor({7})))
                   .run(),
               {3}, {7, 7, 7});
  expectTensor(KernelCall("ConstantOfShape").in(int64s({0}, {})).run(), {}, {0});
  expectTensor(KernelCall("ConstantOfShape").in(int64s({2, 0})).run(), {2, 0}, {});
}

TEST(ConstantOfShape, Refuses) {
  const double huge = 0x1p62;
  EXPECT_FALSE(KernelCall("ConstantOfShape").in(int64s({-1})).run().ok());
  EXPECT_FALSE(KernelCall("ConstantOfShape").in(int64s({huge, 4})).run().ok());
  EXPECT_FALSE(KernelCall("ConstantOfShape").in(int64s({huge})).run().ok());
  expectError(KernelCall("ConstantOfShape")
                  .in(int64s({1}))
                  .attr("value", Attribute::ofTensor(int64Tensor({1, 2})))
                  .run(),
              "value must be one element");
}

KernelResult range(ElementType element, double start, double limit, double delta) {
  return KernelCall("Range")
      .in({element, {}, {start}})
      .in({element, {}, {limit}})
      .in({element, {}, {delta}})
      .run();
}

TEST(Range, Steps) {
  expectTensor(range(ElementType::Int64, 2, 9, 3), {3}, {2, 5, 8});
  expectTensor(range(ElementType::Int64, 10, 4, -2), {3}, {10, 8, 6});
  expectTensor(range(ElementType::Int32, 3, 3, 1), {0}, {});
  expectTensor(range(ElementType::Int64, 5, 3, 1), {0}, {});
  expectTensor(range(ElementType::Float, 0, 1, 0.25), {4}, {0, 0.25, 0.5, 0.75});
  expectTensor(range(ElementType::Float, 1, -0.1, -0.5), {3}, {1, 0.5, 0});
  // The distance does not fit in the element type.
  expectTensor(range(ElementType::Int16, -32768, 32767, 30000), {3}, {-32768, -2768, 27232});
  const double least = -0x1p63, most = 9223372036854774784.0, step = 0x1p62;
  expectTensor(range(ElementType::Int64, least, most, step), {4}, {least, -step, 0, step});
}

/// Since opset 27 the 16-bit floats are computed in stash_type; 0.1 of float16 is not 0.1.
TEST(Range, NarrowFloats) {
  auto narrow = [](ElementType element, double limit, double delta, int stash, int64_t opset = 27) {
    return KernelCall("Range", opset)
        .in({element, {}, {0}})
        .in({element, {}, {limit}})
        .in({element, {}, {delta}})
        .attr("stash_type", stash)
        .run();
  };
  for (int stash : {1, 11}) {
    expectTensor(narrow(ElementType::Float16, 1.5, 0.5, stash), {3}, {0, 0.5, 1});
    expectTensor(narrow(ElementType::BFloat16, -3, -1, stash), {3}, {0, -1, -2});
  }
  const KernelResult result = narrow(ElementType::Float16, 30, 0.1, 1);
  ASSERT_EQ(result.error, "");
  const double delta = double{f16ToFloat(floatToF16(0.1f))};
  for (int64_t i = 0; i < result.outputs[0].count(); ++i)
    EXPECT_EQ(result.outputs[0].get(i), double{f16ToFloat(floatToF16(float(double(i) * delta)))});
  expectError(narrow(ElementType::Float16, 1, 0.5, 7), "stash_type = 7");
  expectError(narrow(ElementType::Float16, 1, 0.5, 1, 26), "element type float16");
}

TEST(Range, Refuses) {
  expectError(range(ElementType::Int64, 0, 5, 0), "delta is 0");
  expectError(range(ElementType::Float, 0, INFINITY, 1), "too many elements");
  expectError(range(ElementType::Float, 0, 1, NAN), "too many elements");
  expectError(range(ElementType::Int64, -0x1p63, 0x1p62, 1), "too many elements");
  expectError(KernelCall("Range").in(int64s({0, 1})).in(int64s({1})).in(int64s({1})).run(),
              "must be scalars");
}

} // namespace
} // namespace kvopt
