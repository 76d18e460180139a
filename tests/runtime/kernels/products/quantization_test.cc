// Quantization, its inverse, and products of codes, against their formulas.
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

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
      SCOPED_TRACE(formatted("{} rank {} axis {}", int(element), form.scale.size(), form.axis));
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

TEST(Quantization, CodesOfLessThanAByteAndOfFloats) {
  const std::pair<ElementType, std::vector<double>> codes[] = {
      {ElementType::Int4, {-8, -1, 0, 3, 7, 2}},
      {ElementType::UInt4, {0, 1, 15, 3, 7, 2}},
      {int2Type, {-2, -1, 0, 1, 1, 0}},
      {uint2Type, {0, 1, 2, 3, 3, 0}},
      {ElementType::Float8E4M3FN, {0.5, -448, 0, 1.125, 2, 3}},
      {ElementType::Float8E4M3FNUZ, {0.5, -240, 0, 1.125, 2, 3}},
      {ElementType::Float8E5M2, {0.5, -57344, 0, 1.25, 2, 3}},
      {ElementType::Float8E5M2FNUZ, {0.5, -57344, 0, 1.25, 2, 3}},
      {ElementType::Float4E2M1, {0.5, -6, 0, 1.5, 2, 3}}};
  for (const auto& [element, values] : codes)
    for (bool hasZero : {false, true}) {
      SCOPED_TRACE(onnxName(element).str());
      const TestTensor scale = floats({3}, {0.5, -2, 3});
      const TestTensor zero(element, {3}, {1, 0, 1});
      std::vector<double> expected;
      for (size_t i = 0; i < values.size(); ++i) {
        const auto column = static_cast<int64_t>(i % 3);
        expected.push_back((values[i] - (hasZero ? zero.get(column) : 0)) * scale.get(column));
      }
      KernelCall call("DequantizeLinear", 25);
      call.in(TestTensor(element, {2, 3}, values)).in(scale);
      if (hasZero)
        call.in(zero);
      expectTensor(call.run(), {2, 3}, expected);
      // Every number is the code of itself.
      KernelCall back("QuantizeLinear", 25);
      back.in(floats({6}, values)).in(floats({}, {1}));
      const KernelResult same = back.attr("output_dtype", static_cast<int>(element)).run();
      expectTensor(same, {6}, values);
      EXPECT_EQ(same.outputs[0].element(), element);
    }
  const TestTensor wide = floats({3}, {-100, 0.75, 100});
  auto quantized = [&](ElementType element) {
    return KernelCall("QuantizeLinear", 21)
        .in(wide)
        .in(floats({}, {0.5}))
        .in(TestTensor(element, {}, {1}))
        .run();
  };
  expectTensor(quantized(ElementType::Int4), {3}, {-8, 3, 7});
  expectTensor(quantized(ElementType::UInt4), {3}, {0, 3, 15});
  expectTensor(quantized(int2Type), {3}, {-2, 1, 1});
  expectTensor(quantized(ElementType::Float8E4M3FN), {3}, {-192, 2.5, 208});
  expectTensor(KernelCall("DequantizeLinear", 23)
                   .in({ElementType::Int4, {1}, {-3}})
                   .in(floats({}, {0.1}))
                   .attr("output_dtype", static_cast<int>(ElementType::Float16))
                   .run(),
               {1}, {double{f16ToFloat(floatToF16(-3 * 0.1f))}});
}

/// Weights of four bits are unpacked where a model is executed, moved, and dequantized.
TEST(Quantization, WeightsOfFourBitsInAModel) {
  auto model = llvm::cantFail(readText(R"(<ir_version: 10, opset_import: ["" : 21]>
g () => (float[3, 2] y, int4[3, 2] codes)
<int4[2, 3] w = {-8, 7, 1, 0, -1, 2}, float[2] scale = {0.5, 2}>
{ codes = Transpose<perm = [1, 0]>(w) y = DequantizeLinear<axis = 1>(codes, scale) })",
                                       testOperators()));
  llvm::cantFail(inferShapes(model->graph()));
  auto executor = llvm::cantFail(Executor::create(*model, testKernels()));
  auto outputs = llvm::cantFail(executor->run(llvm::ArrayRef<TensorView>()));
  const float expected[] = {-4, 0, 3.5, -2, 0.5, 4};
  const int8_t codes[] = {-8, 0, 7, -1, 1, 2};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(outputs[0].view.as<float>()[i], expected[i]);
    EXPECT_EQ(outputs[1].view.as<int8_t>()[i], codes[i]);
  }
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

/// The largest codes over an inner extent whose sums no float holds, and sums beyond 2^31.
TEST(MatMulInteger, IsExactForEveryExtent) {
  for (int64_t rows : {1, 3, 17, 70})
    for (int64_t inner : {0, 255, 257, 1000, 40000}) {
      constexpr int64_t columns = 67;
      if (inner == 40000 && rows > 1)
        continue;
      TestTensor a(ElementType::UInt8, {rows, inner});
      TestTensor b(ElementType::Int8, {inner, columns});
      for (int64_t i = 0; i < a.count(); ++i)
        a.set(i, inner == 40000 ? 255.0 : static_cast<double>(255 - i * 7 % 11));
      for (int64_t i = 0; i < b.count(); ++i)
        b.set(i, inner == 40000 ? -128.0 : static_cast<double>(i * 37 % 256 - 128));
      const TestTensor aZero = codesOf(ElementType::UInt8, {rows}, 3, 5);
      const TestTensor bZero(ElementType::Int8, {}, {127});
      std::vector<double> expected;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) {
          uint32_t sum = 0;
          for (int64_t k = 0; k < inner; ++k)
            sum += static_cast<uint32_t>(static_cast<int32_t>(
                (a.get(i * inner + k) - aZero.get(i)) * (b.get(k * columns + j) - 127)));
          expected.push_back(static_cast<int32_t>(sum));
        }
      for (unsigned threads : {1u, 3u}) {
        KernelCall call("MatMulInteger");
        call.in(a).in(b).in(aZero).in(bZero).threads(threads);
        expectTensor(call.run(), {rows, columns}, expected, 0);
      }
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
