// Gemm: Y = alpha * A' * B' + beta * C, where ' transposes if transA or transB, C broadcast to Y.
//
// Versions: from opset 7 (before, an attribute asked for broadcasting); C is optional from 11.
#include "runtime/blas.h"
#include "runtime/broadcast.h"
#include "runtime/float_operand.h"

#include <fmt/format.h>

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

  MatrixProduct product;
  product.transposeA = node.intAttr("transA", 0) != 0;
  product.transposeB = node.intAttr("transB", 0) != 0;
  product.m = a.shape[product.transposeA ? 1 : 0];
  product.k = a.shape[product.transposeA ? 0 : 1];
  product.n = b.shape[product.transposeB ? 0 : 1];
  if (b.shape[product.transposeB ? 1 : 0] != product.k)
    return context.error(fmt::format("inner extents {} and {} differ", product.k,
                                     b.shape[product.transposeB ? 1 : 0]));
  Extents shape{product.m, product.n};
  if (c && !broadcastsTo(c->shape, shape))
    return context.error("C does not broadcast to the result's shape");
  auto output = context.output(0, a.element, shape);
  if (!output)
    return output.takeError();
  auto left = floatsOf(context, a);
  if (!left)
    return left.takeError();
  auto right = floatsOf(context, b);
  if (!right)
    return right.takeError();
  auto result = floatResult(context, *output);
  if (!result)
    return result.takeError();
  if (c) {
    auto added = floatsOf(context, *c);
    if (!added)
      return added.takeError();
    copyStrided(shape, broadcastStrides(*c, shape), *added, *result);
  }
  product.alpha = node.floatAttr("alpha", 1.0f);
  product.beta = c ? node.floatAttr("beta", 1.0f) : 0.0f;
  product.a = *left;
  product.b = *right;
  product.c = *result;
  product.lda = std::max<int64_t>(a.shape[1], 1);
  product.ldb = std::max<int64_t>(b.shape[1], 1);
  product.ldc = std::max<int64_t>(product.n, 1);
  if (!blasFits(product))
    return context.error("extents beyond 32 bits");
  multiply(product);
  storeFloats(*result, *output);
  return llvm::Error::success();
}

} // namespace

void register_gemm(KernelRegistry& registry) { registry.add("Gemm", 7, gemm); }

} // namespace kvopt
