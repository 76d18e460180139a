// Cast between every family of element types.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

KernelResult cast(TestTensor x, ElementType to) {
  return KernelCall("Cast").in(std::move(x)).attr("to", static_cast<int>(to)).run();
}

TEST(Cast, FloatsToIntegersTruncateAndSaturate) {
  const TestTensor x = floats({5}, {-1.9, 1.9, 1e20, -1e20, kNan});
  expectTensor(cast(x, ElementType::Int32), {5}, {-1, 1, 2147483647, -2147483648.0, 0});
  expectTensor(cast(x, ElementType::UInt8), {5}, {0, 1, 255, 0, 0});
}

TEST(Cast, BooleansAndWrapping) {
  expectTensor(cast(floats({4}, {0, -0.0, 0.5, kNan}), ElementType::Bool), {4}, {0, 0, 1, 1});
  expectTensor(cast(bools({2}, {0, 7}), ElementType::Float), {2}, {0, 1});
  expectTensor(cast(bools({1}, {7}), ElementType::Bool), {1}, {1});
  expectTensor(cast(int64s({300, -1}), ElementType::UInt8), {2}, {44, 255});
}

/// 1 + 2^-11 + 2^-40 lies above the middle of two f16: rounding to f32 first would lose that.
TEST(Cast, RoundsOnce) {
  const TestTensor x(ElementType::Double, {1}, {1 + 0x1p-11 + 0x1p-40});
  expectTensor(cast(x, ElementType::Float16), {1}, {1 + 0x1p-10});
  expectTensor(cast(floats({3}, {1e6, -kInfinity, 1 + 0x1p-11}), ElementType::Float16), {3},
               {kInfinity, -kInfinity, 1});
  expectTensor(cast({ElementType::Float16, {1}, {0.1}}, ElementType::BFloat16), {1},
               {0.10009765625});
}

/// To the nearest integer, then its low bits.
TEST(Cast, SmallIntegers) {
  const TestTensor x = floats({7}, {-9, -1.5, 0.5, 1.5, 7, 8, kNan});
  expectTensor(cast(x, ElementType::Int4), {7}, {7, -2, 0, 2, 7, -8, 0});
  expectTensor(cast(x, ElementType::UInt4), {7}, {7, 14, 0, 2, 7, 8, 0});
  expectTensor(cast(x, int2Type), {7}, {-1, -2, 0, -2, -1, 0, 0});
  expectTensor(cast(x, uint2Type), {7}, {3, 2, 0, 2, 3, 0, 0});
  expectTensor(cast(int64s({-9, 8, 300}), ElementType::Int4), {3}, {7, -8, -4});
  expectTensor(cast(bools({2}, {0, 7}), uint2Type), {2}, {0, 1});
  for (ElementType small : {ElementType::Int4, ElementType::UInt4, int2Type, uint2Type}) {
    const SmallRange range = *smallRangeOf(small);
    std::vector<double> all;
    for (int value = range.least; value <= range.most; ++value)
      all.push_back(value);
    const Extents shape{static_cast<int64_t>(all.size())};
    const TestTensor numbers(small, shape, all);
    for (ElementType wide : {ElementType::Float, ElementType::Float16, ElementType::Int8,
                             ElementType::Int64, ElementType::Double}) {
      const KernelResult result = cast(numbers, wide);
      expectTensor(result, shape, all);
      EXPECT_TRUE(cast(result.outputs[0], small).outputs[0].sameBytes(numbers));
    }
  }
}

TEST(Cast, NarrowFloats) {
  const TestTensor x = floats({4}, {0.3, -500, kInfinity, 1.0625});
  expectTensor(cast(x, ElementType::Float8E4M3FN), {4}, {0.3125, -448, 448, 1});
  expectTensor(cast(x, ElementType::Float8E5M2), {4}, {0.3125, -512, 57344, 1});
  expectTensor(cast(x, ElementType::Float8E4M3FNUZ), {4}, {0.3125, -240, 240, 1});
  expectTensor(cast(x, ElementType::Float4E2M1), {4}, {0.5, -6, 6, 1});
  expectTensor(KernelCall("Cast", 19)
                   .in(x)
                   .attr("to", static_cast<int>(ElementType::Float8E5M2))
                   .attr("saturate", 0)
                   .run(),
               {4}, {0.3125, -512, kInfinity, 1});
  // Rounded once: an f32 between would be in the middle of two numbers.
  expectTensor(cast({ElementType::Double, {1}, {1.0625 + 0x1p-40}}, ElementType::Float8E4M3FN), {1},
               {1.125});
  for (ElementType narrow :
       {ElementType::Float8E4M3FN, ElementType::Float8E4M3FNUZ, ElementType::Float8E5M2,
        ElementType::Float8E5M2FNUZ, ElementType::Float4E2M1}) {
    const TestTensor numbers(narrow, {4}, {0.5, -1.5, 6, 0});
    for (ElementType wide : {ElementType::Float, ElementType::Float16, ElementType::Int32})
      expectTensor(cast(numbers, wide), {4},
                   wide == ElementType::Int32 ? std::vector<double>{0, -1, 6, 0}
                                              : std::vector<double>{0.5, -1.5, 6, 0});
    expectTensor(cast(numbers, ElementType::Bool), {4}, {1, 1, 1, 0});
  }
  auto scale = [](const char* mode) {
    return KernelCall("Cast", 24)
        .in(floats({2}, {5, 0.2}))
        .attr("to", static_cast<int>(float8E8M0Type))
        .attr("round_mode", mode)
        .run();
  };
  expectTensor(scale("up"), {2}, {8, 0.25});
  expectTensor(scale("down"), {2}, {4, 0.125});
  expectTensor(scale("nearest"), {2}, {4, 0.25});
  expectError(scale("sideways"), "'sideways' is unknown");
}

TEST(Cast, LikeEmptyAndRefused) {
  expectTensor(KernelCall("CastLike").in(floats({1}, {2.5})).in(int64s({9})).run(), {1}, {2});
  expectTensor(cast(floats({0, 2}, {}), ElementType::Int64), {0, 2}, {});
  expectError(cast(floats({1}, {1}), ElementType::String), "element type string");
  expectError(KernelCall("Cast").in(floats({1}, {1})).attr("to", -1).run(), "-1 is not known");
}

} // namespace
} // namespace kvopt
