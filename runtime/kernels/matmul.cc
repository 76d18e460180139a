// MatMul: C[…,m,n] = sum_k A[…,m,k] B[…,k,n], batch axes broadcast, a 1-D operand taken as a row
// (A) or a column (B) whose axis is dropped from the result.
//
// Versions: every opset.
#include "runtime/blas.h"
#include "runtime/broadcast.h"
#include "runtime/element_dispatch.h"
#include "runtime/float_operand.h"
#include "runtime/integer_input.h"

namespace kvopt {
namespace {

/// The product's extents and, once the result has its memory, where the operands of every matrix
/// of the result start.
struct Product {
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  Extents resultShape;
  Extents aBatch;
  Extents bBatch;
  Extents batch;
  llvm::SmallVector<int64_t, 8> aOffsets;
  llvm::SmallVector<int64_t, 8> bOffsets;
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
    return context.error(fmt::format("inner extents {} and {} differ", product.k, b[b.size() - 2]));
  product.aBatch.assign(a.begin(), a.end() - 2);
  product.bBatch.assign(b.begin(), b.end() - 2);
  // One matrix on the right: the rows of all left matrices are rows of one product.
  if (product.bBatch.empty() && !product.aBatch.empty()) {
    product.resultShape = Extents(a.begin(), a.end() - 1);
    product.m = kvopt::product(product.resultShape);
    product.aBatch.clear();
  } else {
    auto batch = broadcastShape(context, product.aBatch, product.bBatch);
    if (!batch)
      return batch.takeError();
    product.batch = *batch;
    product.resultShape = *batch;
    if (!aIsVector)
      product.resultShape.push_back(product.m);
  }
  if (!bIsVector)
    product.resultShape.push_back(product.n);
  return product;
}

void locateMatrices(Product& product) {
  auto aView = TensorView::contiguous(ElementType::Float, product.aBatch, nullptr);
  auto bView = TensorView::contiguous(ElementType::Float, product.bBatch, nullptr);
  StridedLoop<2> loop(product.batch, {broadcastStrides(aView, product.batch),
                                      broadcastStrides(bView, product.batch)});
  loop.run([&](const std::array<int64_t, 2>& at, int64_t count, const std::array<int64_t, 2>& by) {
    for (int64_t i = 0; i < count; ++i) {
      product.aOffsets.push_back((at[0] + i * by[0]) * product.m * product.k);
      product.bOffsets.push_back((at[1] + i * by[1]) * product.k * product.n);
    }
  });
}

/// Columns of one unit of work. Fixed, so that the result does not depend on the thread count.
constexpr int64_t panelColumns = 512;

llvm::Error floatProduct(KernelContext& context, const Product& product, const TensorView& output) {
  auto a = floatsOf(context, context.in(0));
  if (!a)
    return a.takeError();
  auto b = floatsOf(context, context.in(1));
  if (!b)
    return b.takeError();
  auto c = floatResult(context, output);
  if (!c)
    return c.takeError();
  int64_t panels = std::max<int64_t>(1, (product.n + panelColumns - 1) / panelColumns);
  MatrixProduct whole;
  whole.m = product.m;
  whole.n = product.n;
  whole.k = product.k;
  whole.lda = std::max<int64_t>(product.k, 1);
  whole.ldb = std::max<int64_t>(product.n, 1);
  whole.ldc = whole.ldb;
  if (!blasFits(whole))
    return context.error("extents beyond 32 bits");
  auto matrices = static_cast<int64_t>(product.aOffsets.size());
  context.parallelFor(matrices * panels, [&](int64_t unit) {
    auto matrix = static_cast<size_t>(unit / panels);
    int64_t column = unit % panels * panelColumns;
    MatrixProduct part = whole;
    part.n = std::min(panelColumns, product.n - column);
    part.a = *a + product.aOffsets[matrix];
    part.b = *b + product.bOffsets[matrix] + column;
    part.c = *c + static_cast<int64_t>(matrix) * product.m * product.n + column;
    multiply(part);
  });
  storeFloats(*c, output);
  return llvm::Error::success();
}

template <class T>
void plainProduct(const Product& product, const TensorView& a, const TensorView& b, T* c) {
  for (size_t matrix = 0; matrix < product.aOffsets.size(); ++matrix)
    for (int64_t i = 0; i < product.m; ++i)
      for (int64_t j = 0; j < product.n; ++j) {
        const T* row = a.as<T>() + product.aOffsets[matrix] + i * product.k;
        const T* column = b.as<T>() + product.bOffsets[matrix] + j;
        T sum = 0;
        for (int64_t k = 0; k < product.k; ++k)
          sum = wrapping<T>(sum, wrapping<T>(row[k], column[k * product.n], std::multiplies<>()),
                            std::plus<>());
        *c++ = sum;
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
  locateMatrices(*product);
  if (isFloatingPoint(element) && element != ElementType::Double)
    return floatProduct(context, *product, *output);
  using Types = TypeList<double, int32_t, int64_t, uint32_t, uint64_t>;
  return dispatch(Types(), context, element, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    plainProduct<T>(*product, context.in(0), context.in(1), output->template as<T>());
    return llvm::Error::success();
  });
}

} // namespace

void register_matmul(KernelRegistry& registry) { registry.add("MatMul", 1, matMul); }

} // namespace kvopt
