// Conv against plain loops over one and two spatial axes.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
namespace {

struct ConvCase {
  int64_t batches = 2, channels = 4, features = 6, group = 2;
  int64_t length = 9, kernel = 3, stride = 1, dilation = 1, before = 0, after = 0;
  ElementType element = ElementType::Float;
  bool bias = false;
};

void expectConv(const ConvCase& c) {
  const int64_t perGroup = c.channels / c.group;
  const TestTensor x = randomTensor(c.element, {c.batches, c.channels, c.length}, 1);
  const TestTensor w = randomTensor(c.element, {c.features, perGroup, c.kernel}, 2);
  const TestTensor b = randomTensor(c.element, {c.features}, 3);
  const int64_t reach = (c.kernel - 1) * c.dilation + 1;
  const int64_t places = (c.length + c.before + c.after - reach) / c.stride + 1;
  std::vector<double> expected;
  for (int64_t n = 0; n < c.batches; ++n)
    for (int64_t m = 0; m < c.features; ++m)
      for (int64_t place = 0; place < places; ++place) {
        double sum = c.bias ? b.get(m) : 0;
        for (int64_t channel = 0; channel < perGroup; ++channel)
          for (int64_t tap = 0; tap < c.kernel; ++tap) {
            const int64_t at = place * c.stride + tap * c.dilation - c.before;
            const int64_t from = m / (c.features / c.group) * perGroup + channel;
            if (at >= 0 && at < c.length)
              sum += x.get((n * c.channels + from) * c.length + at) *
                     w.get((m * perGroup + channel) * c.kernel + tap);
          }
        expected.push_back(sum);
      }
  KernelCall call("Conv");
  call.in(x).in(w);
  if (c.bias)
    call.in(b);
  call.attr("group", int(c.group)).attr("strides", std::vector<int64_t>{c.stride});
  call.attr("dilations", std::vector<int64_t>{c.dilation});
  call.attr("pads", std::vector<int64_t>{c.before, c.after}).threads(2);
  const double tolerance = c.element == ElementType::Float ? 1e-6 : 5e-3;
  expectTensor(call.run(), {c.batches, c.features, places}, expected, tolerance);
}

TEST(Conv, OneAxis) {
  expectConv({});
  ConvCase depthwise;
  depthwise.group = 4;
  depthwise.features = 4;
  depthwise.before = 2;
  expectConv(depthwise);
  ConvCase all;
  all.stride = 2;
  all.dilation = 2;
  all.before = 3;
  all.after = 1;
  all.bias = true;
  expectConv(all);
  all.element = ElementType::Float16;
  expectConv(all);
}

TEST(Conv, TwoAxesAndAutoPad) {
  const TestTensor x = randomTensor(ElementType::Float, {1, 1, 4, 5}, 1);
  const TestTensor w = randomTensor(ElementType::Float, {1, 1, 2, 3}, 2);
  auto at = [&](int64_t i, int64_t j) {
    return i < 0 || j < 0 || i >= 4 || j >= 5 ? 0.0 : x.get(i * 5 + j);
  };
  // One pad along the first axis, two along the second: UPPER puts the odd one at the end.
  for (int64_t before : {0, 1}) {
    std::vector<double> expected;
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 5; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < 2; ++k)
          for (int64_t l = 0; l < 3; ++l)
            sum += at(i + k - before, j + l - 1) * w.get(k * 3 + l);
        expected.push_back(sum);
      }
    expectTensor(KernelCall("Conv")
                     .in(x)
                     .in(w)
                     .attr("auto_pad", before == 0 ? "SAME_UPPER" : "SAME_LOWER")
                     .run(),
                 {1, 1, 4, 5}, expected, 1e-6);
  }
}

TEST(Conv, Refuses) {
  auto call = [](Extents x, Extents w) {
    KernelCall result("Conv");
    result.in(TestTensor(ElementType::Float, std::move(x)));
    result.in(TestTensor(ElementType::Float, std::move(w)));
    return result;
  };
  expectError(call({1, 1}, {1, 1}).run(), "ranks of at least 3");
  expectError(call({1, 2, 3}, {1, 1, 1}).run(), "do not fit W");
  expectError(call({1, 1, 2}, {1, 1, 3}).run(), "reaches over 3 elements of 2");
  expectError(call({1, 1, 2}, {1, 1, 1}).attr("strides", std::vector<int64_t>{0}).run(),
              "out of range");
  expectError(call({1, 1, 2}, {1, 1, 1}).attr("pads", std::vector<int64_t>{1}).run(), "numbers");
  expectError(call({1, 1, 2}, {1, 1, 1}).attr("pads", std::vector<int64_t>{-1, 0}).run(),
              "out of range");
  expectError(call({1, 1, 2}, {1, 1, 1}).attr("auto_pad", "x").run(), "auto_pad 'x'");
  expectTensor(call({0, 1, 2}, {1, 1, 1}).run(), {0, 1, 2}, {});
}

} // namespace
} // namespace kvopt
