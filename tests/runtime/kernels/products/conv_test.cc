// Conv against plain loops over one and two spatial axes.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

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

/// Conv over any number of axes, by the formula.
struct LargeConv {
  Extents x, w; ///< [batch,channels,extents…], [features,channels per group,kernel…]
  int64_t group = 1;
  std::vector<int64_t> strides, dilations, pads;
  ElementType element = ElementType::Float;
  bool bias = true;
  const char* automatic = "NOTSET";

  size_t axes() const { return x.size() - 2; }
  int64_t reach(size_t i) const { return (w[i + 2] - 1) * dilations[i] + 1; }
  int64_t extent(size_t i) const {
    if (std::string(automatic).starts_with("SAME"))
      return (x[i + 2] + strides[i] - 1) / strides[i];
    return (x[i + 2] + pads[i] + pads[axes() + i] - reach(i)) / strides[i] + 1;
  }
  int64_t before(size_t i) const {
    if (!std::string(automatic).starts_with("SAME"))
      return pads[i];
    const int64_t all = std::max<int64_t>(0, (extent(i) - 1) * strides[i] + reach(i) - x[i + 2]);
    return std::string(automatic) == "SAME_UPPER" ? all / 2 : all - all / 2;
  }

  void check() const {
    const TestTensor input = randomTensor(element, x, 1), weights = randomTensor(element, w, 2);
    const TestTensor added = randomTensor(element, {w[0]}, 3);
    Extents shape{x[0], w[0]};
    int64_t places = 1, taps = 1, inner = 1;
    for (size_t i = 0; i < axes(); ++i) {
      shape.push_back(extent(i));
      places *= extent(i);
      taps *= w[i + 2];
      inner *= x[i + 2];
    }
    ASSERT_GT(places * taps * x[0] * w[0] * w[1], 1 << 16) << "small ones are loops";
    std::vector<double> expected;
    for (int64_t batch = 0; batch < x[0]; ++batch)
      for (int64_t feature = 0; feature < w[0]; ++feature)
        for (int64_t place = 0; place < places; ++place) {
          double sum = bias ? added.get(feature) : 0;
          for (int64_t tap = 0; tap < taps; ++tap) {
            int64_t offset = 0, stride = 1, p = place, t = tap;
            bool isInside = true;
            for (size_t i = axes(); i-- > 0;) {
              const int64_t at =
                  p % extent(i) * strides[i] + t % w[i + 2] * dilations[i] - before(i);
              isInside &= at >= 0 && at < x[i + 2];
              offset += at * stride;
              stride *= x[i + 2];
              p /= extent(i);
              t /= w[i + 2];
            }
            for (int64_t channel = 0; isInside && channel < w[1]; ++channel) {
              const int64_t from = batch * x[1] + feature / (w[0] / group) * w[1] + channel;
              sum += input.get(from * inner + offset) *
                     weights.get((feature * w[1] + channel) * taps + tap);
            }
          }
          expected.push_back(sum);
        }
    // Of sums of random numbers up to 1 in f32; 16-bit results are rounded once more.
    const double tolerance = element == ElementType::Float     ? 1e-4
                             : element == ElementType::Float16 ? 2e-2
                                                               : 0.15;
    KernelResult first;
    for (unsigned threads : {1u, 3u}) {
      KernelCall call("Conv");
      call.in(input).in(weights);
      if (bias)
        call.in(added);
      call.attr("group", int(group)).attr("strides", strides).attr("dilations", dilations);
      if (std::string(automatic) == "NOTSET")
        call.attr("pads", pads);
      else
        call.attr("auto_pad", automatic);
      KernelResult result = call.threads(threads).run();
      expectTensor(result, shape, expected, tolerance);
      if (threads == 1)
        first = std::move(result);
      else
        expectTensor(result, shape, first.outputs.at(0).values(), 0);
    }
  }
};

TEST(Conv, LargeOverOneTwoAndThreeAxes) {
  for (bool bias : {false, true}) {
    LargeConv{{2, 5, 60}, {70, 5, 3}, 1, {1}, {1}, {1, 1}, ElementType::Float, bias}.check();
    LargeConv{{1, 3, 17, 19}, {67, 3, 3, 4},      1,   {2, 1}, {1, 2},
              {1, 3, 2, 0},   ElementType::Float, bias}
        .check();
    LargeConv{{1, 4, 7, 6, 5},    {12, 2, 3, 2, 3},   2,   {1, 1, 1}, {1, 1, 1},
              {1, 0, 1, 1, 1, 1}, ElementType::Float, bias}
        .check();
  }
}

TEST(Conv, LargeWithGroups) {
  LargeConv{{3, 96, 300}, {96, 1, 4}, 96, {1}, {1}, {3, 0}}.check();
  LargeConv{{1, 18, 240}, {36, 2, 5}, 9, {1}, {2}, {8, 0}}.check();
  LargeConv{{9, 6, 200}, {9, 2, 5}, 3, {2}, {1}, {0, 1}}.check();
}

TEST(Conv, LargeOfEveryTypeAndAutoPad) {
  for (ElementType element : {ElementType::Float16, ElementType::BFloat16, ElementType::Double})
    LargeConv{{1, 8, 64}, {32, 8, 5}, 1, {1}, {1}, {2, 2}, element}.check();
  for (const char* automatic : {"SAME_UPPER", "SAME_LOWER"})
    LargeConv{{2, 6, 15, 14},     {20, 6, 4, 3}, 1,        {2, 3}, {1, 1}, {},
              ElementType::Float, true,          automatic}
        .check();
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
