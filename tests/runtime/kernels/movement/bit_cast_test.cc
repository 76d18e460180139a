// BitCast keeps every bit, and refuses types of other widths.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

KernelResult bitCast(TestTensor x, ElementType to) {
  return KernelCall("BitCast", 26).in(std::move(x)).attr("to", int(to)).run();
}

TEST(BitCast, KeepsBits) {
  const TestTensor x = floats({2}, {1, -0.0});
  const KernelResult result = bitCast(x, ElementType::UInt32);
  expectTensor(result, {2}, {double(0x3F800000), double(0x80000000)});
  EXPECT_EQ(result.outputs[0].element(), ElementType::UInt32);
  EXPECT_TRUE(bitCast(result.outputs[0], ElementType::Float).outputs[0].sameBytes(x));
  expectTensor(bitCast({ElementType::Float16, {1}, {1}}, ElementType::BFloat16), {1}, {0.0078125});
  expectTensor(bitCast(int64s({0, 2}, {}), ElementType::Double), {0, 2}, {});
}

TEST(BitCast, Refuses) {
  expectError(bitCast(floats({1}, {1}), ElementType::Int64), "the bits of float");
  expectError(bitCast(floats({1}, {1}), ElementType::String), "the bits of float");
  expectError(bitCast(floats({1}, {1}), ElementType::Undefined), "the bits of float");
}

} // namespace
} // namespace kvopt
