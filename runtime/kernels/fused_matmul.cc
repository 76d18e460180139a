// com.microsoft::FusedMatMul: C = alpha * op(A) op(B) for matrices on the last two axes, op being
// the transpose where transA or transB says so; batch axes broadcast.
#include "ir/format.h"
#include "runtime/broadcast.h"
#include "runtime/float_operand.h"
#include "runtime/integer_input.h"
#include "runtime/linear/linear.h"

#include <algorithm>

namespace kvopt {
namespace {

/// One operand: batch axes and the extents as stored.
struct Matrices {
  Extents batch;
  int64_t rows = 0, columns = 0;
  bool transposed = false;

  int64_t outer() const { return transposed ? columns : rows; }
  int64_t inner() const { return transposed ? rows : columns; }
};

llvm::Expected<Matrices> matricesOf(const KernelContext& context, unsigned operand,
                                    const char* transposed) {
  const Extents& shape = context.in(operand).shape;
  if (shape.size() < 2)
    return context.error(fmt::format("operand {} is no matrix", operand));
  Matrices matrices;
  matrices.batch.assign(shape.begin(), shape.end() - 2);
  matrices.rows = shape[shape.size() - 2];
  matrices.columns = shape.back();
  matrices.transposed = context.node().intAttr(transposed, 0) != 0;
  return matrices;
}

llvm::Error fusedMatMul(KernelContext& context) {
  const Node& node = context.node();
  if (node.intAttr("transBatchA", 0) != 0 || node.intAttr("transBatchB", 0) != 0)
    return context.error("transBatchA and transBatchB are not supported");
  const ElementType element = context.in(0).element;
  if (element != context.in(1).element)
    return context.error("operands have different element types");
  auto a = matricesOf(context, 0, "transA");
  if (!a)
    return a.takeError();
  auto b = matricesOf(context, 1, "transB");
  if (!b)
    return b.takeError();
  const int64_t inner = a->inner();
  const int64_t rows = a->outer();
  const int64_t columns = b->transposed ? b->rows : b->columns;
  if (inner != (b->transposed ? b->columns : b->rows))
    return context.error(
        fmt::format("inner extents {} and {} differ", inner, b->transposed ? b->columns : b->rows));
  auto shape = broadcastShape(context, a->batch, b->batch);
  if (!shape)
    return shape.takeError();
  const Extents batch = *shape;
  shape->push_back(rows);
  shape->push_back(columns);
  auto output = context.output(0, element, *shape);
  if (!output)
    return output.takeError();
  if (output->elementCount() == 0)
    return llvm::Error::success();
  auto left = floatsOf(context, context.in(0));
  if (!left)
    return left.takeError();
  auto result = floatResult(context, *output);
  if (!result)
    return result.takeError();
  const MatrixBatch matrices(batch, a->batch, rows * inner, b->batch, inner * columns);
  LinearProduct product;
  product.rows = rows;
  product.inner = inner;
  product.columns = columns;
  product.a = *left;
  product.transposeA = a->transposed;
  setWeights(context, 1, b->transposed, product);
  product.out = *result;
  product.alpha = node.floatAttr("alpha", 1.0f);
  if (llvm::Error error = multiplyMatrices(context, product, matrices))
    return error;
  storeFloats(*result, *output);
  return llvm::Error::success();
}

} // namespace

void register_fused_matmul(KernelRegistry& registry) {
  registry.add("com.microsoft::FusedMatMul", 1, fusedMatMul).weightOperand = 1;
}

} // namespace kvopt
