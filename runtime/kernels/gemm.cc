// Gemm: Y = alpha * A' * B' + beta * C, where ' transposes if transA or transB, C broadcast to Y.
//
// Versions: from opset 7 (before, an attribute asked for broadcasting); C is optional from 11.
#include "ir/format.h"
#include "runtime/broadcast.h"
#include "runtime/float_operand.h"
#include "runtime/linear/linear.h"

namespace kvopt {
namespace {

llvm::Error gemm(KernelContext& context) {
  const Node& node = context.node();
  const TensorView& a = context.in(0);
  const TensorView& b = context.in(1);
  const TensorView* c = context.input(2);
  if (a.rank() != 2 || b.rank() != 2)
    return context.error("operands must be matrices");
  if (a.element != b.element || (c && c->element != a.element))
    return context.error("operands have different element types");

  LinearProduct product;
  product.transposeA = node.intAttr("transA", 0) != 0;
  const bool transposeB = node.intAttr("transB", 0) != 0;
  product.rows = a.shape[product.transposeA ? 1 : 0];
  product.inner = a.shape[product.transposeA ? 0 : 1];
  product.columns = b.shape[transposeB ? 0 : 1];
  if (b.shape[transposeB ? 1 : 0] != product.inner)
    return context.error(
        fmt::format("inner extents {} and {} differ", product.inner, b.shape[transposeB ? 1 : 0]));
  Extents shape{product.rows, product.columns};
  if (c && !broadcastsTo(c->shape, shape))
    return context.error("C does not broadcast to the result's shape");
  auto output = context.output(0, a.element, shape);
  if (!output)
    return output.takeError();
  auto left = floatsOf(context, a);
  if (!left)
    return left.takeError();
  auto result = floatResult(context, *output);
  if (!result)
    return result.takeError();
  const float beta = node.floatAttr("beta", 1.0f);
  if (c && beta != 0.0f) {
    auto added = floatsOf(context, *c);
    if (!added)
      return added.takeError();
    const Extents strides = broadcastStrides(*c, shape);
    product.addend = *added;
    product.addendStrides = {strides[0], strides[1]};
    product.beta = beta;
  }
  product.alpha = node.floatAttr("alpha", 1.0f);
  product.a = *left;
  setWeights(context, 1, transposeB, product);
  product.out = *result;
  if (llvm::Error error = multiplyMatrices(context, product))
    return error;
  storeFloats(*result, *output);
  return llvm::Error::success();
}

} // namespace

void register_gemm(KernelRegistry& registry) { registry.add("Gemm", 7, gemm).weightOperand = 1; }

} // namespace kvopt
