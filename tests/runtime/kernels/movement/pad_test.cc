// Pad in every mode, against small results written by hand and a plain loop.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

KernelCall pad(const TestTensor& x, const std::vector<double>& pads, const char* mode) {
  KernelCall call("Pad", 19);
  call.in(x).in(int64s(pads)).attr("mode", mode);
  return call;
}

TEST(Pad, Modes) {
  const TestTensor x = floats({3}, {1, 2, 3});
  expectTensor(pad(x, {2, 1}, "constant").run(), {6}, {0, 0, 1, 2, 3, 0});
  expectTensor(pad(x, {2, 1}, "constant").in(floats({}, {7})).run(), {6}, {7, 7, 1, 2, 3, 7});
  expectTensor(pad(x, {2, 1}, "edge").run(), {6}, {1, 1, 1, 2, 3, 3});
  expectTensor(pad(x, {2, 2}, "reflect").run(), {7}, {3, 2, 1, 2, 3, 2, 1});
  expectTensor(pad(x, {4, 2}, "wrap").run(), {9}, {3, 1, 2, 3, 1, 2, 3, 1, 2});
  expectTensor(pad(x, {-1, 2}, "constant").run(), {4}, {2, 3, 0, 0});
  expectTensor(pad(x, {-1, -1}, "edge").run(), {1}, {2});
  expectTensor(pad(floats({1}, {5}), {2, 1}, "reflect").run(), {4}, {5, 5, 5, 5});
}

TEST(Pad, AxesAndTypes) {
  for (ElementType element :
       {ElementType::Float, ElementType::Float16, ElementType::Int64, ElementType::Int8}) {
    const TestTensor x = randomTensor(element, {2, 3, 4}, 1, 100);
    std::vector<double> expected;
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t j = -1; j < 3; ++j)
        for (int64_t k = 0; k < 4 + 2; ++k)
          expected.push_back(j < 0 || k >= 4 ? 9 : x.get((i * 3 + j) * 4 + k));
    KernelCall call("Pad", 18);
    call.in(x).in(int64s({1, 0, 0, 2})).in(TestTensor(element, {}, {9})).in(int64s({1, -1}));
    expectTensor(call.run(), {2, 4, 6}, expected);
  }
}

TEST(Pad, AttributesBeforeOpset11) {
  KernelCall call("Pad", 10);
  call.in(floats({2}, {1, 2})).attr("pads", std::vector<int64_t>{1, 1}).attr("value", 3.5);
  expectTensor(call.run(), {4}, {3.5, 1, 2, 3.5});
}

TEST(Pad, EmptyAndRefused) {
  const TestTensor x = floats({2}, {1, 2});
  expectTensor(pad(floats({0}, {}), {1, 1}, "constant").run(), {2}, {0, 0});
  expectTensor(pad(x, {-2, 0}, "constant").run(), {0}, {});
  expectError(pad(floats({0}, {}), {1, 1}, "edge").run(), "no element to repeat");
  expectError(pad(x, {-3, 0}, "constant").run(), "an extent of -1");
  expectError(pad(x, {1}, "constant").run(), "1 pads for 1 axes");
  expectError(pad(x, {1, 1}, "else").run(), "the mode is not one of ONNX's");
  expectTensor(pad(x, {9e18, -9e18}, "constant").run(), {2}, {0, 0});
  expectError(pad(x, {1, 1}, "constant").in(int64s({1})).run(), "the fill is not one element");
  EXPECT_FALSE(pad(x, {1e12, 0}, "constant").run().ok());
}

} // namespace
} // namespace kvopt
