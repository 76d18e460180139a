// com.microsoft::MatMulNBits: Y [..,N] = A [..,K] W^T + bias with W [N,K] stored in 2, 4 or 8 bits:
//
//   W[n,k] = (q[n,k] - z[n,k / block_size]) * scales[n,k / block_size]
//
// B is uint8 [N,blocks,block_size * bits / 8], the first of the numbers that share a byte in its
// lowest bits; scales [N,blocks]. z is 2^(bits-1) unless zero_points are given: of A's type
// [N,blocks], or packed like B into ⌈blocks * bits / 8⌉ bytes a row.
#include "runtime/blas.h"
#include "runtime/float_operand.h"
#include "runtime/integer_input.h"

#include <algorithm>
#include <fmt/format.h>

namespace kvopt {
namespace {

enum Operand : unsigned { A, B, Scales, ZeroPoints, GroupIndex, Bias };

struct Weights {
  int64_t rows = 0;    ///< N
  int64_t columns = 0; ///< K
  int64_t blockSize = 0;
  int64_t blocks = 0; ///< ⌈K / block_size⌉
  int64_t bits = 0;
  const uint8_t* packed = nullptr;
  const float* scales = nullptr;
  const float* zeroFloats = nullptr;
  const uint8_t* zeroPacked = nullptr;

  int64_t blockBytes() const { return blockSize * bits / 8; }
  int64_t zeroBytes() const { return (blocks * bits + 7) / 8; }

  /// Number `index` of those packed from `bytes` on.
  float number(const uint8_t* bytes, int64_t index) const {
    const int64_t perByte = 8 / bits;
    const auto shift = static_cast<unsigned>(index % perByte * bits);
    return static_cast<float>((bytes[index / perByte] >> shift) & ((1u << bits) - 1));
  }

  float zeroPoint(int64_t row, int64_t block) const {
    if (zeroFloats)
      return zeroFloats[row * blocks + block];
    if (zeroPacked)
      return number(zeroPacked + row * zeroBytes(), block);
    return static_cast<float>(1 << (bits - 1));
  }

  /// W[row, :].
  void dequantize(int64_t row, float* out) const {
    for (int64_t block = 0; block < blocks; ++block) {
      const uint8_t* bytes = packed + (row * blocks + block) * blockBytes();
      const float scale = scales[row * blocks + block];
      const float zero = zeroPoint(row, block);
      const int64_t first = block * blockSize;
      const int64_t count = std::min(blockSize, columns - first);
      for (int64_t i = 0; i < count; ++i)
        out[first + i] = (number(bytes, i) - zero) * scale;
    }
  }
};

llvm::Expected<Weights> weightsOf(KernelContext& context) {
  const Node& node = context.node();
  Weights weights;
  weights.rows = node.intAttr("N", 0);
  weights.columns = node.intAttr("K", 0);
  weights.blockSize = node.intAttr("block_size", 0);
  weights.bits = node.intAttr("bits", 4);
  constexpr int64_t most = int64_t{1} << 31;
  if (weights.rows <= 0 || weights.columns <= 0 || weights.rows > most || weights.columns > most)
    return context.error("N and K must be positive and fit in 32 bits");
  if (weights.bits != 2 && weights.bits != 4 && weights.bits != 8)
    return context.error(fmt::format("{} bits are not supported", weights.bits));
  if (weights.blockSize < 16 || weights.blockSize > most || weights.blockSize % 16 != 0)
    return context.error(fmt::format("a block size of {}", weights.blockSize));
  weights.blocks = (weights.columns + weights.blockSize - 1) / weights.blockSize;
  const TensorView& packed = context.in(B);
  auto bytes = countOf(context, {weights.rows, weights.blocks, weights.blockBytes()});
  if (!bytes)
    return bytes.takeError();
  if (packed.element != ElementType::UInt8 || packed.elementCount() != *bytes)
    return context.error(fmt::format("B must be uint8 [{},{},{}]", weights.rows, weights.blocks,
                                     weights.blockBytes()));
  weights.packed = packed.as<uint8_t>();
  if (context.in(Scales).elementCount() != weights.rows * weights.blocks)
    return context.error("scales must be [N,blocks]");
  auto scales = floatsOf(context, context.in(Scales));
  if (!scales)
    return scales.takeError();
  weights.scales = *scales;
  if (const TensorView* zeros = context.input(ZeroPoints)) {
    const bool isPacked = zeros->element == ElementType::UInt8;
    const int64_t perRow = isPacked ? weights.zeroBytes() : weights.blocks;
    if (zeros->elementCount() != weights.rows * perRow)
      return context.error("zero_points have another shape than the blocks ask for");
    if (isPacked) {
      weights.zeroPacked = zeros->as<uint8_t>();
    } else {
      auto floats = floatsOf(context, *zeros);
      if (!floats)
        return floats.takeError();
      weights.zeroFloats = *floats;
    }
  }
  return weights;
}

/// Rows of W that are unpacked at a time. Fixed, so that the result does not depend on the threads.
constexpr int64_t panelRows = 64;

llvm::Error multiplyPanels(KernelContext& context, const Weights& weights, MatrixProduct whole) {
  const int64_t panels = (weights.rows + panelRows - 1) / panelRows;
  const auto workers = std::min<int64_t>(panels, context.threads());
  const int64_t perWorker = std::min(panelRows, weights.rows) * weights.columns;
  auto bytes = countOf(context, {workers, perWorker, int64_t{sizeof(float)}});
  if (!bytes)
    return bytes.takeError();
  auto memory = context.scratch(static_cast<size_t>(*bytes));
  if (!memory)
    return memory.takeError();
  auto* scratch = reinterpret_cast<float*>(memory->data());
  context.parallelFor(workers, [&](int64_t worker) {
    float* unpacked = scratch + worker * perWorker;
    for (int64_t panel = worker; panel < panels; panel += workers) {
      MatrixProduct part = whole;
      const int64_t first = panel * panelRows;
      part.n = std::min(panelRows, weights.rows - first);
      for (int64_t row = 0; row < part.n; ++row)
        weights.dequantize(first + row, unpacked + row * weights.columns);
      part.b = unpacked;
      part.c = whole.c + first;
      multiply(part);
    }
  });
  return llvm::Error::success();
}

llvm::Error matMulNBits(KernelContext& context) {
  if (context.has(GroupIndex))
    return context.error("g_idx is not supported");
  auto weights = weightsOf(context);
  if (!weights)
    return weights.takeError();
  const TensorView& a = context.in(A);
  if (a.rank() == 0 || a.shape.back() != weights->columns)
    return context.error(fmt::format("A must have rows of {} elements", weights->columns));
  Extents shape = a.shape;
  shape.back() = weights->rows;
  auto output = context.output(0, a.element, shape);
  if (!output)
    return output.takeError();
  if (output->elementCount() == 0)
    return llvm::Error::success();
  auto from = floatsOf(context, a);
  if (!from)
    return from.takeError();
  auto to = floatResult(context, *output);
  if (!to)
    return to.takeError();
  MatrixProduct product;
  product.transposeB = true;
  product.m = a.elementCount() / weights->columns;
  product.n = weights->rows;
  product.k = weights->columns;
  product.a = *from;
  product.lda = product.ldb = weights->columns;
  product.c = *to;
  product.ldc = weights->rows;
  if (!blasFits(product))
    return context.error("extents beyond 32 bits");
  if (context.has(Bias)) {
    if (context.in(Bias).elementCount() != weights->rows)
      return context.error("bias must be [N]");
    auto bias = floatsOf(context, context.in(Bias));
    if (!bias)
      return bias.takeError();
    for (int64_t row = 0; row < product.m; ++row)
      std::copy_n(*bias, weights->rows, *to + row * weights->rows);
    product.beta = 1.0f;
  }
  if (llvm::Error error = multiplyPanels(context, *weights, product))
    return error;
  storeFloats(*to, *output);
  return llvm::Error::success();
}

} // namespace

void register_matmul_nbits(KernelRegistry& registry) {
  registry.add("com.microsoft::MatMulNBits", 1, matMulNBits);
}

} // namespace kvopt
