// MatMul: C[…,m,n] = sum_k A[…,m,k] B[…,k,n]. Batch axes broadcast. A 1-D operand is a row (A) or a
// column (B) whose axis is removed from the result.
//
// Versions: every opset.
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "runtime/kernels/support/linear.h"
#include "runtime/memory/element_storage.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

struct Product {
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  Extents resultShape;
  MatrixBatch batch;
};

llvm::Expected<Product> describe(KernelContext& context) {
  Extents a = context.in(0).shape;
  Extents b = context.in(1).shape;
  if (a.empty() || b.empty())
    return context.error("a scalar operand");
  bool aIsVector = a.size() == 1;
  bool bIsVector = b.size() == 1;
  if (aIsVector)
    a.insert(a.begin(), 1);
  if (bIsVector)
    b.push_back(1);
  Product product;
  product.m = a[a.size() - 2];
  product.k = a.back();
  product.n = b.back();
  if (b[b.size() - 2] != product.k)
    return context.error(formatted("inner extents {} and {} differ", product.k, b[b.size() - 2]));
  const llvm::ArrayRef<int64_t> aBatch = llvm::ArrayRef<int64_t>(a).drop_back(2);
  const llvm::ArrayRef<int64_t> bBatch = llvm::ArrayRef<int64_t>(b).drop_back(2);
  // With a single matrix on the right, the rows of all left matrices are rows of one product.
  if (kernels::product(bBatch) == 1 && bBatch.size() <= aBatch.size() && !aBatch.empty()) {
    product.resultShape = Extents(a.begin(), a.end() - 1);
    product.m = kernels::product(product.resultShape);
  } else {
    auto batch = broadcastShape(context, aBatch, bBatch);
    if (!batch)
      return batch.takeError();
    product.batch =
        MatrixBatch(*batch, aBatch, product.m * product.k, bBatch, product.k * product.n);
    product.resultShape = *batch;
    if (!aIsVector)
      product.resultShape.push_back(product.m);
  }
  if (!bIsVector)
    product.resultShape.push_back(product.n);
  return product;
}

llvm::Error floatProduct(KernelContext& context, const Product& described,
                         const TensorView& output) {
  auto a = floatsOf(context, context.in(0));
  if (!a)
    return a.takeError();
  auto c = floatResult(context, output);
  if (!c)
    return c.takeError();
  LinearProduct product;
  product.rows = described.m;
  product.inner = described.k;
  product.columns = described.n;
  product.a = *a;
  setWeights(context, 1, false, product);
  product.out = *c;
  if (llvm::Error error = multiplyMatrices(context, product, described.batch))
    return error;
  storeFloats(*c, output);
  return llvm::Error::success();
}

template <class T>
void plainProduct(const Product& product, const TensorView& a, const TensorView& b, T* c) {
  for (int64_t matrix = 0; matrix < product.batch.count(); ++matrix) {
    const MatrixBatch::Offsets offsets = product.batch.at(matrix);
    for (int64_t i = 0; i < product.m; ++i)
      for (int64_t j = 0; j < product.n; ++j) {
        const T* row = a.as<T>() + offsets.a + i * product.k;
        const T* column = b.as<T>() + offsets.weights + j;
        T sum = 0;
        for (int64_t k = 0; k < product.k; ++k)
          sum = wrapping<T>(sum, wrapping<T>(row[k], column[k * product.n], std::multiplies<>()),
                            std::plus<>());
        *c++ = sum;
      }
  }
}

llvm::Error matMul(KernelContext& context) {
  ElementType element = context.in(0).element;
  if (element != context.in(1).element)
    return context.error("operands have different element types");
  auto product = describe(context);
  if (!product)
    return product.takeError();
  auto output = context.output(0, element, product->resultShape);
  if (!output)
    return output.takeError();
  if (output->elementCount() == 0)
    return llvm::Error::success();
  if (storageOf(element))
    return floatProduct(context, *product, *output);
  using Types = TypeList<double, int32_t, int64_t, uint32_t, uint64_t>;
  return dispatch(Types(), context, element, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    plainProduct<T>(*product, context.in(0), context.in(1), output->template as<T>());
    return llvm::Error::success();
  });
}

} // namespace

void register_matmul(KernelRegistry& registry) {
  registry.add("MatMul", 1, matMul).weightOperand = 1;
}

} // namespace kvopt::kernels
