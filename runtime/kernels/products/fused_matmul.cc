// com.microsoft::FusedMatMul: C = alpha * op(A) op(B) for matrices on the last two axes, where op
// transposes if transA or transB is set; batch axes broadcast. transBatchA and transBatchB first
// move the first axis before the last one: [M,…,K] becomes […,M,K].
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "runtime/kernels/support/linear.h"
#include "support/format.h"

#include <algorithm>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// One operand: batch axes and the extents as stored.
struct Matrices {
  Extents batch;
  int64_t rows = 0, columns = 0;
  bool transposed = false;
  bool rowsFirst = false; ///< stored as [rows, batch…, columns]

  int64_t outer() const { return transposed ? columns : rows; }
  int64_t inner() const { return transposed ? rows : columns; }
};

llvm::Expected<Matrices> matricesOf(const KernelContext& context, unsigned operand,
                                    const char* transposed, const char* rowsFirst) {
  const Extents& shape = context.in(operand).shape;
  if (shape.size() < 2)
    return context.error(formatted("operand {} is not a matrix", operand));
  Matrices matrices;
  matrices.rowsFirst = context.node().intAttr(rowsFirst, 0) != 0 && shape.size() > 2;
  const size_t first = matrices.rowsFirst ? 1 : 0;
  matrices.batch.assign(shape.begin() + static_cast<ptrdiff_t>(first),
                        shape.end() - 2 + static_cast<ptrdiff_t>(first));
  matrices.rows = matrices.rowsFirst ? shape[0] : shape[shape.size() - 2];
  matrices.columns = shape.back();
  matrices.transposed = context.node().intAttr(transposed, 0) != 0;
  return matrices;
}

/// Rows of `from`, which is stored with its rows first, in the order of matrices.
llvm::Expected<const std::byte*> matrixByMatrix(KernelContext& context, const Matrices& matrices,
                                                const void* from, size_t elementBytes) {
  const auto rowBytes = static_cast<size_t>(matrices.columns) * elementBytes;
  const auto batch = static_cast<size_t>(product(matrices.batch));
  const auto rows = static_cast<size_t>(matrices.rows);
  auto copy = context.scratch(batch * rows * rowBytes);
  if (!copy)
    return copy.takeError();
  const auto* source = static_cast<const std::byte*>(from);
  for (size_t matrix = 0; matrix < batch; ++matrix)
    for (size_t row = 0; row < rows; ++row)
      std::copy_n(source + (row * batch + matrix) * rowBytes, rowBytes,
                  copy->data() + (matrix * rows + row) * rowBytes);
  return copy->data();
}

llvm::Error fusedMatMul(KernelContext& context) {
  const Node& node = context.node();
  const ElementType element = context.in(0).element;
  if (element != context.in(1).element)
    return context.error("operands have different element types");
  if (node.intAttr("transBatchB", 0) != 0 && context.weights(1))
    return context.error("transBatchB is not supported for constant weights");
  auto a = matricesOf(context, 0, "transA", "transBatchA");
  if (!a)
    return a.takeError();
  auto b = matricesOf(context, 1, "transB", "transBatchB");
  if (!b)
    return b.takeError();
  const int64_t inner = a->inner();
  const int64_t rows = a->outer();
  const int64_t columns = b->transposed ? b->rows : b->columns;
  if (inner != (b->transposed ? b->columns : b->rows))
    return context.error(
        formatted("inner extents {} and {} differ", inner, b->transposed ? b->columns : b->rows));
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
  if (a->rowsFirst) {
    auto copy = matrixByMatrix(context, *a, *left, sizeof(float));
    if (!copy)
      return copy.takeError();
    *left = reinterpret_cast<const float*>(*copy);
  }
  auto result = floatResult(context, *output);
  if (!result)
    return result.takeError();
  const MatrixBatch matrices(batch, a->batch, rows * inner, b->batch, inner * columns);
  LinearProduct linear;
  linear.rows = rows;
  linear.inner = inner;
  linear.columns = columns;
  linear.a = *left;
  linear.transposeA = a->transposed;
  setWeights(context, 1, b->transposed, linear);
  if (b->rowsFirst) {
    auto copy = matrixByMatrix(context, *b, linear.weights, *byteWidth(element));
    if (!copy)
      return copy.takeError();
    linear.weights = *copy;
  }
  linear.out = *result;
  linear.alpha = node.floatAttr("alpha", 1.0f);
  if (llvm::Error error = multiplyMatrices(context, linear, matrices))
    return error;
  storeFloats(*result, *output);
  return llvm::Error::success();
}

} // namespace

void register_fused_matmul(KernelRegistry& registry) {
  registry.add("com.microsoft::FusedMatMul", 1, fusedMatMul).weightOperand = 1;
}

} // namespace kvopt::kernels
