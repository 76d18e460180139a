// com.microsoft::MatMulNBits: Y [..,N] = A [..,K] W^T + bias with W [N,K] stored in 2, 4 or 8 bits:
//
//   W[n,k] = (q[n,k] - z[n,k / block_size]) * scales[n,k / block_size]
//
// B is uint8 [N,blocks,block_size * bits / 8]; the first of the numbers in a byte is in its lowest
// bits. scales is [N,blocks]. zero_points are [N,blocks] of A's type, or packed like B into ⌈blocks
// * bits / 8⌉ bytes per row; the default z is 2^(bits-1).
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "runtime/kernels/support/linear.h"
#include "runtime/memory/element_storage.h"
#include "support/format.h"

namespace kvopt::kernels {
using namespace ir;
using namespace linear;
using namespace runtime;
using namespace simd;

namespace {

enum Operand : unsigned { A, B, Scales, ZeroPoints, GroupIndex, Bias };

llvm::Expected<BlockWeights> weightsOf(KernelContext& context) {
  const Node& node = context.node();
  BlockWeights weights;
  weights.columns = node.intAttr("N", 0);
  weights.inner = node.intAttr("K", 0);
  weights.blockSize = node.intAttr("block_size", 0);
  weights.bits = node.intAttr("bits", 4);
  constexpr int64_t most = int64_t{1} << 31;
  if (weights.columns <= 0 || weights.inner <= 0 || weights.columns > most || weights.inner > most)
    return context.error("N and K must be positive and fit in 32 bits");
  if (weights.bits != 2 && weights.bits != 4 && weights.bits != 8)
    return context.error(formatted("{} bits are not supported", weights.bits));
  if (weights.blockSize < 16 || weights.blockSize > most || weights.blockSize % 16 != 0)
    return context.error(formatted("a block size of {}", weights.blockSize));
  weights.blocks = (weights.inner + weights.blockSize - 1) / weights.blockSize;
  const int64_t blockBytes = weights.blockSize * weights.bits / 8;
  const TensorView& packed = context.in(B);
  auto bytes = countOf(context, {weights.columns, weights.blocks, blockBytes});
  if (!bytes)
    return bytes.takeError();
  if (packed.element != ElementType::UInt8 || packed.elementCount() != *bytes)
    return context.error(
        formatted("B must be uint8 [{},{},{}]", weights.columns, weights.blocks, blockBytes));
  weights.numbers = packed.as<uint8_t>();
  const TensorView& scales = context.in(Scales);
  if (scales.elementCount() != weights.columns * weights.blocks)
    return context.error("scales must be [N,blocks]");
  if (!storageOf(scales.element))
    return context.error("scales must be f32, f16 or bf16");
  weights.scaleStorage = *storageOf(scales.element);
  weights.scales = scales.data;
  const TensorView* zeros = context.input(ZeroPoints);
  if (!zeros)
    return weights;
  const bool isPacked = zeros->element == ElementType::UInt8;
  const int64_t perRow = isPacked ? weights.zeroRowBytes() : weights.blocks;
  if (zeros->elementCount() != weights.columns * perRow)
    return context.error("zero_points have another shape than the blocks ask for");
  if (!isPacked && !storageOf(zeros->element))
    return context.error("zero_points must be uint8, f32, f16 or bf16");
  weights.zeroKind = isPacked ? BlockWeights::Zeros::packed : BlockWeights::Zeros::floats;
  weights.zeroStorage = storageOf(zeros->element).value_or(FloatStorage::f32);
  weights.zeros = zeros->data;
  return weights;
}

llvm::Error matMulNBits(KernelContext& context) {
  if (context.has(GroupIndex))
    return context.error("g_idx is not supported");
  if (const int64_t layout = context.node().intAttr("weight_prepacked", 0); layout != 0)
    return context.error(formatted("weight_prepacked {} is not supported", layout));
  auto weights = weightsOf(context);
  if (!weights)
    return weights.takeError();
  const TensorView& a = context.in(A);
  if (a.rank() == 0 || a.shape.back() != weights->inner)
    return context.error(formatted("A must have rows of {} elements", weights->inner));
  if (context.has(Bias) && context.in(Bias).elementCount() != weights->columns)
    return context.error("bias must be [N]");
  Extents shape = a.shape;
  shape.back() = weights->columns;
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
  LinearProduct product;
  product.rows = a.elementCount() / weights->inner;
  product.inner = weights->inner;
  product.columns = weights->columns;
  product.a = *from;
  product.blocks = &*weights;
  product.out = *to;
  if (context.has(Bias)) {
    auto bias = floatsOf(context, context.in(Bias));
    if (!bias)
      return bias.takeError();
    product.addend = *bias;
    product.addendStrides = {0, 1};
  }
  if (llvm::Error error = multiplyMatrices(context, product))
    return error;
  storeFloats(*to, *output);
  return llvm::Error::success();
}

} // namespace

void register_matmul_nbits(KernelRegistry& registry) {
  registry.add("com.microsoft::MatMulNBits", 1, matMulNBits);
}

} // namespace kvopt::kernels
