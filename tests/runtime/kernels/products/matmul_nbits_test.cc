// com.microsoft::MatMulNBits against a double loop over its definition.
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;

namespace {

enum class Zeros { None, Packed, Floats };

struct QuantizedCase {
  int64_t rows = 70, columns = 40, blockSize = 16, bits = 4;
  Zeros zeros = Zeros::None;
  ElementType element = ElementType::Float;
  bool bias = false;

  int64_t blocks() const { return (columns + blockSize - 1) / blockSize; }
};

class QuantizedProblem {
public:
  explicit QuantizedProblem(const QuantizedCase& given) : c(given) {
    a = randomTensor(c.element, {2, 3, c.columns}, 1);
    scales = randomTensor(c.element, {c.rows * c.blocks()}, 2, 0.1);
    bias = randomTensor(c.element, {c.rows}, 3);
    std::mt19937 generator(4);
    packed = TestTensor(ElementType::UInt8, {c.rows, c.blocks(), c.blockSize * c.bits / 8});
    for (int64_t i = 0; i < packed.count(); ++i)
      packed.set(i, double(generator() % 256));
    const int64_t zeroBytes = (c.blocks() * c.bits + 7) / 8;
    zeros = c.zeros == Zeros::Floats ? randomTensor(c.element, {c.rows * c.blocks()}, 5, 8)
                                     : TestTensor(ElementType::UInt8, {c.rows * zeroBytes});
    for (int64_t i = 0; i < zeros.count() && c.zeros != Zeros::Floats; ++i)
      zeros.set(i, double(generator() % 256));
  }

  KernelCall call() const {
    KernelCall result("com.microsoft::MatMulNBits");
    result.in(a).in(packed).in(scales);
    c.zeros != Zeros::None ? result.in(zeros) : result.absent();
    result.absent();
    if (c.bias)
      result.in(bias);
    result.attr("K", int(c.columns)).attr("N", int(c.rows)).attr("bits", int(c.bits));
    result.attr("block_size", int(c.blockSize));
    return result;
  }

  std::vector<double> expected() const {
    std::vector<double> y;
    for (int64_t token = 0; token < 6; ++token)
      for (int64_t n = 0; n < c.rows; ++n) {
        double sum = c.bias ? bias.get(n) : 0;
        for (int64_t k = 0; k < c.columns; ++k)
          sum += a.get(token * c.columns + k) * weight(n, k);
        y.push_back(sum);
      }
    return y;
  }

private:
  double weight(int64_t n, int64_t k) const {
    const int64_t block = k / c.blockSize;
    const int64_t line = n * c.blocks() + block;
    const int64_t bytes = c.blockSize * c.bits / 8;
    const double q = number(packed, line * bytes, k % c.blockSize);
    double zero = double(1 << (c.bits - 1));
    if (c.zeros == Zeros::Packed)
      zero = number(zeros, n * ((c.blocks() * c.bits + 7) / 8), block);
    if (c.zeros == Zeros::Floats)
      zero = zeros.get(line);
    return (q - zero) * scales.get(line);
  }
  double number(const TestTensor& bytes, int64_t first, int64_t index) const {
    const int64_t bit = index * c.bits;
    const auto byte = unsigned(bytes.get(first + bit / 8));
    return double((byte >> (bit % 8)) & ((1u << c.bits) - 1));
  }

  QuantizedCase c;
  TestTensor a, packed, scales, zeros, bias;
};

TEST(MatMulNBits, Formula) {
  for (int64_t bits : {2, 4, 8})
    for (Zeros zeros : {Zeros::None, Zeros::Packed, Zeros::Floats})
      for (int64_t blockSize : {16, 32, 64})
        for (ElementType element : {ElementType::Float, ElementType::Float16}) {
          SCOPED_TRACE(formatted("{} bits, zeros {}, blocks of {}", bits, int(zeros), blockSize));
          QuantizedCase c;
          c.bits = bits;
          c.zeros = zeros;
          c.blockSize = blockSize;
          c.element = element;
          c.bias = blockSize == 32;
          const QuantizedProblem problem(c);
          // At most 40 products of at most 255 * 0.1.
          const double rounding = element == ElementType::Float ? 0x1p-22 : 0x1p-11;
          expectTensor(problem.call().threads(3).run(), {2, 3, 70}, problem.expected(),
                       1020 * rounding);
        }
}

TEST(MatMulNBits, Refuses) {
  const QuantizedProblem problem{QuantizedCase()};
  EXPECT_TRUE(problem.call().run().ok());
  expectError(problem.call().attr("bits", 3).run(), "3 bits");
  expectError(problem.call().attr("block_size", 24).run(), "a block size of 24");
  expectError(problem.call().attr("block_size", 32).run(), "B must be uint8 [70,2,16]");
  expectError(problem.call().attr("N", -1).run(), "N and K");
  expectError(problem.call().attr("N", 69).run(), "B must be");
  expectError(problem.call().attr("K", 39).run(), "A must have rows of 39");
}

} // namespace
} // namespace kvopt
