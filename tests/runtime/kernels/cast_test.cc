// Cast between every family of element types.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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

TEST(Cast, LikeEmptyAndRefused) {
  expectTensor(KernelCall("CastLike").in(floats({1}, {2.5})).in(int64s({9})).run(), {1}, {2});
  expectTensor(cast(floats({0, 2}, {}), ElementType::Int64), {0, 2}, {});
  expectError(cast(floats({1}, {1}), ElementType::String), "element type string");
  expectError(KernelCall("Cast").in(floats({1}, {1})).attr("to", -1).run(), "-1 is not known");
}

} // namespace
} // namespace kvopt
