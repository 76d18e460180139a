// Quantisation, its inverse, and products of codes, against their formulas.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
namespace {

/// Whole numbers that every code type holds.
TestTensor codesOf(ElementType element, const Extents& shape, unsigned seed, double magnitude) {
  const TestTensor numbers = randomTensor(ElementType::Float, shape, seed, magnitude);
  TestTensor codes(element, shape);
  for (int64_t i = 0; i < codes.count(); ++i)
    codes.set(
        i, std::floor(element == ElementType::UInt8 ? std::abs(numbers.get(i)) : numbers.get(i)));
  return codes;
}

TEST(Quantization, DequantizesByTensorAxisAndBlock) {
  for (ElementType element : {ElementType::UInt8, ElementType::Int8, ElementType::Int16}) {
    const TestTensor x = codesOf(element, {2, 5, 3}, 1, 100);
    struct Form {
      Extents scale;
      int axis, block;
    };
    for (const Form& form : {Form{{}, 1, 0}, Form{{1}, 1, 0}, Form{{5}, 1, 0}, Form{{3}, -1, 0},
                             Form{{2, 3, 3}, 1, 2}, Form{{2, 5, 1}, 2, 3}}) {
      SCOPED_TRACE(fmt::format("{} rank {} axis {}", int(element), form.scale.size(), form.axis));
      const TestTensor scale = randomTensor(ElementType::Float, form.scale, 2);
      const TestTensor zero = codesOf(element, form.scale, 3, 20);
      std::vector<double> expected;
      for (int64_t i = 0; i < x.count(); ++i) {
        const int64_t a = i / 15, b = i / 3 % 5, c = i % 3;
        const int64_t at = scale.count() == 1 ? 0
                           : form.block == 2  ? (a * 3 + b / 2) * 3 + c
                           : form.block == 3  ? a * 5 + b
                           : form.axis == 1   ? b
                                              : c;
        expected.push_back((x.get(i) - zero.get(at)) * scale.get(at));
      }
      KernelCall call("DequantizeLinear", 21);
      call.in(x).in(scale).in(zero).attr("axis", form.axis).attr("block_size", form.block);
      expectTensor(call.run(), x.shape(), expected, 1e-5);
    }
  }
  KernelCall half("DequantizeLinear", 21);
  half.in({ElementType::Int8, {2}, {-3, 5}}).in({ElementType::Float16, {}, {0.5}});
  expectTensor(half.run(), {2}, {-1.5, 2.5});
}

TEST(Quantization, RoundsAndSaturates) {
  const TestTensor x = floats({6}, {-300, -1.5, 0.5, 1.5, 2.4, 300});
  expectTensor(KernelCall("QuantizeLinear").in(x).in(floats({}, {1})).run(), {6},
               {0, 0, 0, 2, 2, 255});
  expectTensor(
      KernelCall("QuantizeLinear").in(x).in(floats({}, {1})).in({ElementType::Int8, {}, {1}}).run(),
      {6}, {-128, -1, 1, 3, 3, 127});
  expectTensor(KernelCall("QuantizeLinear")
                   .in(floats({2, 2}, {1, 2, 3, 4}))
                   .in(floats({2}, {0.5, 0.25}))
                   .attr("axis", 1)
                   .run(),
               {2, 2}, {2, 8, 6, 16});
}

TEST(Quantization, Dynamic) {
  const KernelResult result =
      KernelCall("DynamicQuantizeLinear").in(floats({4}, {0, 2, -3, -2.5})).results(3).run();
  expectTensor(result, {}, {5.0 / 255}, 1e-8, 1);
  expectTensor(result, {}, {153}, 0, 2);
  expectTensor(result, {4}, {153, 255, 0, 25}, 1);
  const KernelResult zeros =
      KernelCall("DynamicQuantizeLinear").in(floats({2}, {0, 0})).results(3).run();
  expectTensor(zeros, {2}, {0, 0});
  expectTensor(zeros, {}, {1}, 0, 1);
}

TEST(MatMulInteger, Formula) {
  for (bool byColumn : {false, true})
    for (ElementType element : {ElementType::UInt8, ElementType::Int8}) {
      const TestTensor a = codesOf(ElementType::UInt8, {2, 3, 4, 5}, 1, 100);
      const TestTensor b = codesOf(element, {3, 5, 6}, 2, 100);
      const TestTensor aZero(ElementType::UInt8, {}, {7});
      const TestTensor bZero = codesOf(element, byColumn ? Extents{6} : Extents{}, 3, 50);
      std::vector<double> expected;
      for (int64_t batch = 0; batch < 6; ++batch)
        for (int64_t i = 0; i < 4; ++i)
          for (int64_t j = 0; j < 6; ++j) {
            double sum = 0;
            for (int64_t k = 0; k < 5; ++k)
              sum += (a.get((batch * 4 + i) * 5 + k) - 7) *
                     (b.get((batch % 3 * 5 + k) * 6 + j) - bZero.get(byColumn ? j : 0));
            expected.push_back(sum);
          }
      KernelCall call("MatMulInteger");
      call.in(a).in(b).in(aZero).in(bZero).threads(2);
      expectTensor(call.run(), {2, 3, 4, 6}, expected);
    }
}

TEST(Quantization, Refuses) {
  const TestTensor codes(ElementType::Int8, {2, 3}, {1, 2, 3, 4, 5, 6});
  auto run = [&](const TestTensor& scale, int block) {
    return KernelCall("DequantizeLinear", 21).in(codes).in(scale).attr("block_size", block).run();
  };
  expectError(run(floats({2}, {1, 1}), 0), "each position of the axis");
  expectError(run(floats({2, 1}, {1, 1}), 2), "each block");
  expectError(run(floats({3}, {1, 1, 1}), -1), "block_size of -1");
  expectError(KernelCall("DequantizeLinear")
                  .in(codes)
                  .in(floats({}, {1}))
                  .in({ElementType::UInt8, {}, {1}})
                  .run(),
              "zero point");
  expectError(KernelCall("MatMulInteger").in(codes).in(codes).run(), "inner extents 3 and 2");
  expectError(KernelCall("DynamicQuantizeLinear").in(int64s({1})).results(3).run(), "floats");
}

} // namespace
} // namespace kvopt
