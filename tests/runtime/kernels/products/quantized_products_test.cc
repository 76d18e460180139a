// com.microsoft::MatMulIntegerToFloat and DynamicQuantizeMatMul against plain loops.
#include "tests/runtime/kernels/kernel_harness.h"

#include <algorithm>
#include <cmath>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

TestTensor codes(ElementType element, Extents shape, unsigned seed) {
  TestTensor result(element, std::move(shape));
  std::mt19937 generator(seed);
  const int low = element == ElementType::Int8 ? -128 : 0;
  for (int64_t i = 0; i < result.count(); ++i)
    result.set(i, double(low + int(generator() % 256)));
  return result;
}

double at(const TestTensor* numbers, int64_t column) {
  return !numbers ? 0 : numbers->get(numbers->count() == 1 ? 0 : column);
}

/// [B,M,K] times [K,N].
std::vector<double> product(const std::vector<double>& a, const TestTensor& b, int64_t inner,
                            double aScale, const TestTensor& scale, const TestTensor* zero,
                            const TestTensor* bias) {
  const int64_t columns = b.shape().back();
  std::vector<double> result;
  for (size_t row = 0; row < a.size() / size_t(inner); ++row)
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < inner; ++k)
        sum += a[row * size_t(inner) + size_t(k)] * (b.get(k * columns + j) - at(zero, j));
      result.push_back(sum * aScale * at(&scale, j) + at(bias, j));
    }
  return result;
}

TEST(MatMulIntegerToFloat, TypesZeroPointsAndScales) {
  for (ElementType aType : {ElementType::UInt8, ElementType::Int8})
    for (ElementType bType : {ElementType::UInt8, ElementType::Int8})
      for (int options = 0; options < 16; ++options) {
        SCOPED_TRACE(formatted("{} {} {}", onnxName(aType).str(), onnxName(bType).str(), options));
        const int64_t n = 5, k = 7, perColumn = (options & 1) != 0 ? n : 1;
        const TestTensor a = codes(aType, {2, 3, k}, 1), b = codes(bType, {k, n}, 2);
        const TestTensor aScale = floats({}, {0.5});
        const TestTensor bScale = randomTensor(ElementType::Float, {perColumn}, 3);
        const TestTensor aZero = codes(aType, {}, 4), bZero = codes(bType, {perColumn}, 5);
        const TestTensor bias = randomTensor(ElementType::Float, {n}, 6, 100);
        const bool hasA = (options & 2) != 0, hasB = (options & 4) != 0, hasBias = options > 7;
        KernelCall call("com.microsoft::MatMulIntegerToFloat");
        call.in(a).in(b).in(aScale).in(bScale);
        hasA ? call.in(aZero) : call.absent();
        hasB ? call.in(bZero) : call.absent();
        hasBias ? call.in(bias) : call.absent();
        std::vector<double> shifted = a.values();
        for (double& value : shifted)
          value -= hasA ? aZero.get(0) : 0;
        expectTensor(
            call.threads(2).run(), {2, 3, n},
            product(shifted, b, k, 0.5, bScale, hasB ? &bZero : nullptr, hasBias ? &bias : nullptr),
            0.1);
      }
}

TEST(MatMulIntegerToFloat, HalfPrecisionAndBatches) {
  const TestTensor a = codes(ElementType::UInt8, {3, 1, 2, 4}, 1);
  const TestTensor b = codes(ElementType::Int8, {2, 4, 3}, 2);
  const TestTensor scale(ElementType::Float16, {}, {0.01});
  KernelCall call("com.microsoft::MatMulIntegerToFloat");
  const KernelResult result = call.in(a).in(b).in(scale).in(scale).run();
  std::vector<double> expected;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 2; ++j)
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t column = 0; column < 3; ++column) {
          double sum = 0;
          for (int64_t inner = 0; inner < 4; ++inner)
            sum += a.get((i * 2 + row) * 4 + inner) * b.get((j * 4 + inner) * 3 + column);
          expected.push_back(sum * scale.get(0) * scale.get(0));
        }
  expectTensor(result, {3, 2, 2, 3}, expected, 0.02);
}

TEST(DynamicQuantizeMatMul, QuantizesTheRangeOfAAndZero) {
  for (double offset : {-3.0, 0.0, 5.0})
    for (ElementType bType : {ElementType::UInt8, ElementType::Int8})
      for (int options = 0; options < 8; ++options) {
        SCOPED_TRACE(formatted("{} {} {}", offset, onnxName(bType).str(), options));
        const int64_t n = 4, k = 9, perColumn = (options & 1) != 0 ? n : 1;
        TestTensor a = randomTensor(ElementType::Float, {2, 3, k}, 1);
        float low = 0, high = 0;
        for (int64_t i = 0; i < a.count(); ++i) {
          a.set(i, a.get(i) + offset);
          low = std::min(low, float(a.get(i)));
          high = std::max(high, float(a.get(i)));
        }
        const float scale = (high - low) / 255.0f;
        const double zero = std::nearbyint(double(-low / scale));
        std::vector<double> rounded;
        for (double value : a.values())
          rounded.push_back(
              std::clamp(std::nearbyint(double(float(value) / scale)) + zero, 0.0, 255.0) - zero);
        const TestTensor b = codes(bType, {k, n}, 2), bZero = codes(bType, {perColumn}, 5);
        const TestTensor bScale = randomTensor(ElementType::Float, {perColumn}, 3);
        const TestTensor bias = randomTensor(ElementType::Float, {n}, 6, 100);
        const bool hasZero = (options & 2) != 0, hasBias = (options & 4) != 0;
        KernelCall call("com.microsoft::DynamicQuantizeMatMul");
        call.in(a).in(b).in(bScale);
        hasZero ? call.in(bZero) : call.absent();
        hasBias ? call.in(bias) : call.absent();
        expectTensor(call.run(), {2, 3, n},
                     product(rounded, b, k, double(scale), bScale, hasZero ? &bZero : nullptr,
                             hasBias ? &bias : nullptr),
                     1e-2);
      }
}

TEST(DynamicQuantizeMatMul, NothingButZeros) {
  KernelCall call("com.microsoft::DynamicQuantizeMatMul");
  call.in(floats({1, 2}, {0, 0})).in(codes(ElementType::Int8, {2, 3}, 1)).in(floats({}, {0.5}));
  expectTensor(call.run(), {1, 3}, {0, 0, 0}, 0);
}

TEST(MatMulIntegerToFloat, Refuses) {
  const TestTensor a = codes(ElementType::UInt8, {2, 4}, 1),
                   b = codes(ElementType::Int8, {4, 3}, 2);
  auto call = [&](const TestTensor& aScale, const TestTensor& bScale) {
    KernelCall result("com.microsoft::MatMulIntegerToFloat");
    result.in(a).in(b).in(aScale).in(bScale);
    return result;
  };
  const TestTensor one = floats({}, {1}), two = floats({2}, {1, 2});
  EXPECT_TRUE(call(one, one).run().ok());
  expectError(call(two, one).run(), "operand 2 (of A)");
  expectError(call(one, two).run(), "operand 3 (of B)");
  expectError(call(one, one).absent().in(one).run(), "type of its codes");
  expectError(call(one, one).absent().absent().in(one).run(), "the bias must be [3]");
  KernelCall inner("com.microsoft::MatMulIntegerToFloat");
  expectError(inner.in(b).in(b).in(one).in(one).run(), "inner extents 3 and 4 differ");
}

TEST(QLinearMatMul, RoundsToEvenAndSaturates) {
  for (ElementType type : {ElementType::UInt8, ElementType::Int8})
    for (bool perColumn : {false, true}) {
      SCOPED_TRACE(formatted("{} {}", onnxName(type).str(), perColumn));
      const int64_t n = 5, k = 7;
      const TestTensor a = codes(type, {2, 3, k}, 1), b = codes(type, {k, n}, 2);
      const TestTensor aScale = floats({}, {0.5}), yScale = floats({}, {16});
      const TestTensor bScale = perColumn ? floats({n}, {0.25, 0.5, 1, 2, 4}) : floats({}, {0.25});
      const TestTensor aZero = codes(type, {}, 4), yZero = codes(type, {}, 6);
      const TestTensor bZero = codes(type, perColumn ? Extents{n} : Extents{}, 5);
      std::vector<double> shifted = a.values();
      for (double& value : shifted)
        value -= aZero.get(0);
      std::vector<double> expected = product(shifted, b, k, 0.5 / 16, bScale, &bZero, nullptr);
      const double low = type == ElementType::Int8 ? -128 : 0;
      for (double& value : expected)
        value = std::clamp(std::nearbyint(value) + yZero.get(0), low, low + 255);
      KernelCall call("QLinearMatMul");
      call.in(a).in(aScale).in(aZero).in(b).in(bScale).in(bZero).in(yScale).in(yZero);
      expectTensor(call.threads(2).run(), {2, 3, n}, expected);
    }
}

TEST(QLinearMatMul, Refuses) {
  const TestTensor a = codes(ElementType::UInt8, {2, 3}, 1),
                   zero = codes(ElementType::UInt8, {}, 2);
  const TestTensor b = codes(ElementType::UInt8, {4, 2}, 3), one = floats({}, {1});
  const TestTensor two = floats({2}, {1, 2});
  auto run = [&](const TestTensor& right, const TestTensor& scale) {
    return KernelCall("QLinearMatMul")
        .in(a)
        .in(scale)
        .in(zero)
        .in(right)
        .in(one)
        .in(zero)
        .in(one)
        .in(zero)
        .run();
  };
  expectError(run(b, one), "inner extents 3 and 4");
  expectError(run(codes(ElementType::UInt8, {3, 2}, 4), two), "must be one number");
}

} // namespace
} // namespace kvopt
