// Integer products as sums of exact f32 products over 256 inner values each.
#include "runtime/kernels/support/integer_product.h"

#include "runtime/kernels/support/blas.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_strips.h"
#include "runtime/linear/float_product.h"

#include <algorithm>
#include <atomic>
#include <climits>

namespace kvopt::kernels {
using namespace ir;
using namespace linear;
using namespace runtime;

namespace {

/// 256 * 255 * 255 < 2^24.
constexpr int64_t exactInner = 256;
constexpr int64_t stripColumns = 64;
constexpr int64_t stripRows = 64;

int32_t codeOf(uint8_t bits, bool isSigned) {
  return isSigned ? int32_t{static_cast<int8_t>(bits)} : int32_t{bits};
}

/// `count` codes minus one zero point, as f32.
template <class Code>
void widenCodes(const uint8_t* codes, int32_t zero, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(static_cast<int32_t>(static_cast<Code>(codes[i])) - zero);
}

/// The same with a zero point for each code.
template <class Code>
void widenCodes(const uint8_t* codes, const int32_t* zeros, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(static_cast<int32_t>(static_cast<Code>(codes[i])) - zeros[i]);
}

/// A strip of columns for all rows.
class Strip {
public:
  Strip(const IntegerProduct& computed, const float* widenedA, float* workingMemory)
      : p(computed), a(widenedA), tile(workingMemory), sums(tile + exactInner * stripColumns) {}

  static constexpr int64_t floats = exactInner * stripColumns + stripRows * stripColumns;

  void compute(int64_t begin, int64_t end) {
    const int64_t width = end - begin;
    int32_t zeros[stripColumns];
    for (int64_t n = 0; n < width; ++n)
      zeros[n] = p.b.zero(begin + n);
    for (int64_t m = 0; m < p.rows; ++m)
      std::fill_n(p.out + m * p.columns + begin, width, 0);
    for (int64_t k = 0; k < p.inner; k += exactInner) {
      const int64_t depth = std::min(exactInner, p.inner - k);
      const auto widen = p.b.isSigned ? static_cast<WidenRow*>(widenCodes<int8_t>)
                                      : static_cast<WidenRow*>(widenCodes<uint8_t>);
      for (int64_t i = 0; i < depth; ++i)
        widen(p.b.codes + (k + i) * p.columns + begin, zeros, tile + i * width, width);
      for (int64_t m = 0; m < p.rows; m += stripRows)
        addRows(m, std::min(stripRows, p.rows - m), k, depth, begin, width);
    }
  }

private:
  using WidenRow = void(const uint8_t*, const int32_t*, float*, int64_t);

  void addRows(int64_t m, int64_t rows, int64_t k, int64_t depth, int64_t begin, int64_t width) {
    if (rows <= fewRows) {
      FloatProduct part;
      part.rows = rows;
      part.inner = depth;
      part.columns = width;
      part.a = a + m * p.inner + k;
      part.aStride = p.inner;
      part.weights = tile;
      part.weightStride = width;
      part.out = sums;
      part.outStride = width;
      multiplyColumns(part, 0, width);
    } else {
      MatrixProduct part;
      part.m = rows;
      part.n = width;
      part.k = depth;
      part.a = a + m * p.inner + k;
      part.lda = p.inner;
      part.b = tile;
      part.ldb = width;
      part.c = sums;
      part.ldc = width;
      multiply(part);
    }
    for (int64_t row = 0; row < rows; ++row) {
      int32_t* out = p.out + (m + row) * p.columns + begin;
      const float* from = sums + row * width;
      for (int64_t n = 0; n < width; ++n)
        out[n] = static_cast<int32_t>(static_cast<uint32_t>(out[n]) +
                                      static_cast<uint32_t>(static_cast<int32_t>(from[n])));
    }
  }

  const IntegerProduct& p;
  const float* a;
  float* tile;
  float* sums;
};

} // namespace

int32_t CodeOperand::zero(int64_t position) const {
  return zeros ? codeOf(zeros[hasManyZeros ? position : 0], isSigned) : 0;
}

llvm::Error multiplyIntegers(KernelContext& context, const IntegerProduct& product,
                             IntegerScratch& scratch) {
  const IntegerProduct& p = product;
  if (p.rows == 0 || p.columns == 0)
    return llvm::Error::success();
  if (std::max({p.rows, p.inner, p.columns}) > INT_MAX)
    return context.error("extents beyond 32 bits");
  if (p.b.strips)
    return multiplyCodeStrips(context, p, scratch);
  const int64_t strips = (p.columns + stripColumns - 1) / stripColumns;
  const int64_t workers = std::min<int64_t>(strips, context.threads());
  if (!scratch.a) {
    auto floats = floatScratch(context, p.rows * p.inner);
    if (!floats)
      return floats.takeError();
    auto tiles = floatScratch(context, workers * Strip::floats);
    if (!tiles)
      return tiles.takeError();
    scratch = {*floats, *tiles};
  }
  for (int64_t m = 0; m < p.rows; ++m) {
    const uint8_t* from = p.a.codes + m * p.inner;
    if (p.a.isSigned)
      widenCodes<int8_t>(from, p.a.zero(m), scratch.a + m * p.inner, p.inner);
    else
      widenCodes<uint8_t>(from, p.a.zero(m), scratch.a + m * p.inner, p.inner);
  }
  std::atomic<int64_t> next{0};
  context.parallelFor(workers, [&](int64_t worker) {
    Strip strip(p, scratch.a, scratch.tiles + worker * Strip::floats);
    for (int64_t unit = next.fetch_add(1); unit < strips; unit = next.fetch_add(1))
      strip.compute(unit * stripColumns, std::min((unit + 1) * stripColumns, p.columns));
  });
  return llvm::Error::success();
}

} // namespace kvopt::kernels
