// Distribution of matrix products over threads.
#include "runtime/kernels/support/linear.h"
#include "runtime/memory/element_storage.h"

#include "runtime/exec/constant_weights.h"
#include "runtime/kernels/support/blas.h"
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/strip_product.h"
#include "runtime/linear/float_product.h"
#include "runtime/linear/pack_strips.h"
#include "runtime/simd/elementwise.h"

#include <algorithm>
#include <atomic>
#include <climits>

namespace kvopt::kernels {
using namespace ir;
using namespace linear;
using namespace runtime;
using namespace simd;

namespace {

int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t bytesPerElement(FloatStorage storage) { return storage == FloatStorage::f32 ? 4 : 2; }

/// Operands of one product of a batch.
LinearProduct matrixOf(const LinearProduct& whole, const MatrixBatch& batch, int64_t index) {
  LinearProduct part = whole;
  const MatrixBatch::Offsets offsets = batch.at(index);
  part.a += offsets.a;
  if (!whole.blocks)
    part.weights =
        static_cast<const char*>(whole.weights) + offsets.weights * bytesPerElement(whole.storage);
  part.out += index * whole.rows * whole.columns;
  return part;
}

/// Applies the scale and the addend after the sums of a region are computed.
void scaleAndAdd(const LinearProduct& p, const Region& region) {
  const bool adds = p.addend && p.beta != 0.0f;
  if (p.alpha == 1.0f && !adds)
    return;
  for (int64_t m = region.rowBegin; m < region.rowEnd; ++m) {
    float* out = p.out + m * p.columns;
    if (p.alpha != 1.0f)
      for (int64_t n = region.columnBegin; n < region.columnEnd; ++n)
        out[n] *= p.alpha;
    if (!adds)
      continue;
    const float* addend = p.addend + m * p.addendStrides[0];
    if (p.addendStrides[1] == 1)
      for (int64_t n = region.columnBegin; n < region.columnEnd; ++n)
        out[n] += p.beta * addend[n];
    else
      for (int64_t n = region.columnBegin; n < region.columnEnd; ++n)
        out[n] += p.beta * addend[n * p.addendStrides[1]];
  }
}

/// Minimum size in bytes of the weights of a piece of work that is worth another thread.
constexpr int64_t smallestPiece = 1 << 15;
/// Number of pieces for each thread, so that a delayed thread does not delay the others.
constexpr int64_t piecesPerThread = 4;

/// Number of columns of one piece of work, for which the weights are read once. It does not affect
/// sums.
int64_t columnsOfPiece(const KernelContext& context, const LinearProduct& p, int64_t matrices) {
  const int64_t threads = context.threads();
  const int64_t bytes = p.blocks ? p.columns * p.blocks->rowBytes()
                                 : p.columns * p.inner * bytesPerElement(p.storage);
  const int64_t wanted = threads == 1 ? 1 : ceilDivide(threads * piecesPerThread, matrices);
  const int64_t pieces =
      std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, bytes / smallestPiece));
  return std::max<int64_t>(64, ceilDivide(ceilDivide(p.columns, pieces), 64) * 64);
}

FloatProduct floatProduct(const LinearProduct& p) {
  FloatProduct product;
  product.rows = p.rows;
  product.inner = p.inner;
  product.columns = p.columns;
  product.a = p.a;
  product.aStride = p.inner;
  product.storage = p.storage;
  product.weights = p.weights;
  product.weightStride = p.transposeWeights ? p.inner : p.columns;
  product.out = p.out;
  product.outStride = p.columns;
  return product;
}

/// Activations of matrices with few rows in row-major order, converted from columns.
llvm::Error transposeActivations(KernelContext& context, LinearProduct& p, int64_t matrices) {
  auto rows = floatScratch(context, matrices * p.rows * p.inner);
  if (!rows)
    return rows.takeError();
  for (int64_t matrix = 0; matrix < matrices; ++matrix)
    for (int64_t m = 0; m < p.rows; ++m)
      for (int64_t k = 0; k < p.inner; ++k)
        (*rows)[(matrix * p.rows + m) * p.inner + k] =
            p.a[matrix * p.rows * p.inner + k * p.rows + m];
  p.a = *rows;
  p.transposeA = false;
  return llvm::Error::success();
}

/// Whether blocks of the inner extent are summed separately and then added. Threads that share the
/// rows of [inner,columns] weights then read whole rows, which is faster than strips of rows.
bool isSplitByInner(const KernelContext& context, const LinearProduct& p,
                    const MatrixBatch& batch) {
  return p.rows == 1 && batch.count() == 1 && !p.blocks && !p.transposeWeights &&
         context.threads() > 1 && p.inner >= 2 * sumBlock &&
         p.inner * p.columns * bytesPerElement(p.storage) >= 2 * smallestPiece;
}

/// One row with [inner,columns] weights. Adds the sums of blocks in the order of multiplyColumns.
llvm::Error multiplyBlocksOfInner(KernelContext& context, const LinearProduct& p) {
  const int64_t blocks = ceilDivide(p.inner, sumBlock);
  auto sums = floatScratch(context, blocks * p.columns);
  if (!sums)
    return sums.takeError();
  const int64_t wanted = ceilDivide(context.threads() * piecesPerThread, blocks);
  const int64_t width = ceilDivide(ceilDivide(p.columns, wanted), 64) * 64;
  const int64_t across = ceilDivide(p.columns, width);
  context.parallelFor(blocks * across, [&](int64_t unit) {
    const int64_t block = unit / across, begin = unit % across * width;
    FloatProduct part = floatProduct(p);
    part.inner = std::min(sumBlock, p.inner - block * sumBlock);
    part.a += block * sumBlock;
    part.weights = static_cast<const char*>(p.weights) +
                   block * sumBlock * p.columns * bytesPerElement(p.storage);
    part.out = *sums + block * p.columns;
    multiplyColumns(part, begin, std::min(begin + width, p.columns));
  });
  std::copy_n(*sums, p.columns, p.out);
  for (int64_t block = 1; block < blocks; ++block) {
    const float* from = *sums + block * p.columns;
    for (int64_t n = 0; n < p.columns; ++n)
      p.out[n] += from[n];
  }
  scaleAndAdd(p, {0, 1, 0, p.columns});
  return llvm::Error::success();
}

llvm::Error multiplyFewRows(KernelContext& context, const LinearProduct& whole,
                            const MatrixBatch& batch) {
  if (isSplitByInner(context, whole, batch))
    return multiplyBlocksOfInner(context, matrixOf(whole, batch, 0));
  const float* packed = nullptr;
  if (whole.blocks) {
    auto floats = floatScratch(context, packedActivationFloats(*whole.blocks, whole.rows));
    if (!floats)
      return floats.takeError();
    packActivations(*whole.blocks, whole.a, whole.inner, whole.rows, *floats);
    packed = *floats;
  }
  const int64_t width = columnsOfPiece(context, whole, batch.count());
  const int64_t pieces = ceilDivide(whole.columns, width);
  context.parallelFor(batch.count() * pieces, [&](int64_t unit) {
    const LinearProduct p = matrixOf(whole, batch, unit / pieces);
    const int64_t begin = unit % pieces * width;
    const int64_t end = std::min(begin + width, p.columns);
    if (p.blocks)
      multiplyBlocks(*p.blocks, packed, p.rows, begin, end, p.out, p.columns);
    else if (p.transposeWeights)
      multiplyRows(floatProduct(p), begin, end);
    else
      multiplyColumns(floatProduct(p), begin, end);
    scaleAndAdd(p, {0, p.rows, begin, end});
  });
  return llvm::Error::success();
}

/// Number of rows per tile for OpenBLAS. It is fixed, because sums may depend on it.
constexpr int64_t tileRows = 512;
constexpr int64_t tileInner = 256;
constexpr int64_t mostTileColumns = 512;

int64_t tileColumns(const LinearProduct& p) { return p.columns >= 2048 ? mostTileColumns : 128; }

/// Expands the tile of W with inner extents [begin,begin+count) to f32, in the storage order of W.
void expandTile(const LinearProduct& p, const Region& region, int64_t begin, int64_t count,
                float* tile) {
  const int64_t columns = region.columnEnd - region.columnBegin;
  if (p.blocks) {
    for (int64_t n = 0; n < columns; ++n)
      p.blocks->expand(region.columnBegin + n, begin, begin + count, tile + n * count);
    return;
  }
  const auto widen = p.storage == FloatStorage::f16 ? convertF16ToF32 : convertBf16ToF32;
  const auto* weights = static_cast<const uint16_t*>(p.weights);
  if (p.transposeWeights)
    for (int64_t n = 0; n < columns; ++n)
      widen(weights + (region.columnBegin + n) * p.inner + begin, tile + n * count,
            static_cast<size_t>(count));
  else
    for (int64_t k = 0; k < count; ++k)
      widen(weights + (begin + k) * p.columns + region.columnBegin, tile + k * columns,
            static_cast<size_t>(columns));
}

/// Computes a region with OpenBLAS. If the weights are not f32, `tile` has room for tileInner *
/// mostTileColumns floats.
void multiplyRegion(const LinearProduct& p, const Region& region, float* tile) {
  const bool byColumn = p.transposeWeights || p.blocks;
  MatrixProduct product;
  product.transposeA = p.transposeA;
  product.transposeB = byColumn;
  product.m = region.rowEnd - region.rowBegin;
  product.n = region.columnEnd - region.columnBegin;
  product.lda = p.transposeA ? p.rows : p.inner;
  product.c = p.out + region.rowBegin * p.columns + region.columnBegin;
  product.ldc = p.columns;
  const float* a = p.a + region.rowBegin * (p.transposeA ? 1 : p.inner);
  if (!tile || p.inner == 0) {
    product.k = p.inner;
    product.a = a;
    product.b = static_cast<const float*>(p.weights) +
                region.columnBegin * (p.transposeWeights ? p.inner : 1);
    product.ldb = p.transposeWeights ? p.inner : p.columns;
    multiply(product);
    return;
  }
  for (int64_t k = 0; k < p.inner; k += tileInner) {
    product.k = std::min(tileInner, p.inner - k);
    expandTile(p, region, k, product.k, tile);
    product.a = a + k * (p.transposeA ? p.rows : 1);
    product.b = tile;
    product.ldb = byColumn ? product.k : product.n;
    product.beta = k == 0 ? 0.0f : 1.0f;
    multiply(product);
  }
}

/// Computes the regions of all products with `compute`, which is called with a product, a region,
/// and working memory of `scratchBytes` bytes, and returns whether it succeeded.
template <class Compute>
llvm::Error multiplyRegions(KernelContext& context, const LinearProduct& whole,
                            const MatrixBatch& batch, int64_t height, int64_t width,
                            int64_t scratchBytes, Compute compute) {
  const int64_t across = ceilDivide(whole.columns, width);
  const int64_t perMatrix = across * ceilDivide(whole.rows, height);
  const int64_t units = batch.count() * perMatrix;
  const int64_t workers = std::min<int64_t>(units, context.threads());
  auto scratch = context.scratch(static_cast<size_t>(workers * scratchBytes));
  if (!scratch)
    return scratch.takeError();
  std::atomic<int64_t> next{0};
  std::atomic<bool> isComputed{true};
  context.parallelFor(workers, [&](int64_t worker) {
    for (int64_t unit = next.fetch_add(1); unit < units; unit = next.fetch_add(1)) {
      const LinearProduct p = matrixOf(whole, batch, unit / perMatrix);
      Region region;
      region.rowBegin = unit % perMatrix / across * height;
      region.rowEnd = std::min(region.rowBegin + height, p.rows);
      region.columnBegin = unit % across * width;
      region.columnEnd = std::min(region.columnBegin + width, p.columns);
      if (!compute(p, region, scratch->data() + worker * scratchBytes))
        isComputed = false;
      scaleAndAdd(p, region);
    }
  });
  return isComputed ? llvm::Error::success() : context.error("oneDNN cannot compute the product");
}

/// All strips of W, which the first product packs; null if memory is short.
const float* keptStrips(KernelContext& context, const LinearProduct& p) {
  return p.strips->get(stripFloats(p.inner, p.columns), [&](float* strips) {
    constexpr int64_t each = 8 * stripColumns;
    context.parallelFor(ceilDivide(p.columns, each), [&](int64_t part) {
      const int64_t begin = part * each;
      packStripsOf(p, begin, std::min(begin + each, p.columns),
                   strips + stripFloats(p.inner, begin));
    });
  });
}

llvm::Error multiplyManyRows(KernelContext& context, const LinearProduct& whole,
                             const MatrixBatch& batch) {
  if (std::max({whole.rows, whole.inner, whole.columns}) > INT_MAX)
    return context.error("extents beyond 32 bits");
  LinearProduct p = whole;
  if (auto strips = StripProduct::create(p, batch.count(), context.threads())) {
    if (p.transposeA)
      if (llvm::Error error = transposeActivations(context, p, batch.leftMatrices()))
        return error;
    if (p.strips && batch.count() == 1)
      strips->useStrips(keptStrips(context, matrixOf(p, batch, 0)));
    return multiplyRegions(context, p, batch, strips->regionRows(), strips->regionColumns(),
                           strips->scratchBytes(),
                           [&](const LinearProduct& part, const Region& region, std::byte* memory) {
                             return strips->compute(part, region, memory);
                           });
  }
  const bool isExpanded = p.blocks || p.storage != FloatStorage::f32;
  const int64_t tileBytes = isExpanded ? tileInner * mostTileColumns * int64_t{sizeof(float)} : 0;
  return multiplyRegions(context, p, batch, tileRows, tileColumns(p), tileBytes,
                         [&](const LinearProduct& part, const Region& region, std::byte* memory) {
                           multiplyRegion(part, region,
                                          isExpanded ? reinterpret_cast<float*>(memory) : nullptr);
                           return true;
                         });
}

} // namespace

void setWeights(const KernelContext& context, unsigned operand, bool transposed,
                LinearProduct& product) {
  const ConstantWeights* constant = context.weights(operand);
  if (constant && constant->blocks) {
    product.blocks = &*constant->blocks;
  } else if (constant) {
    product.storage = constant->storage;
    product.weights = constant->data;
    product.transposeWeights = transposed != constant->transposed;
    product.strips = constant->strips.get();
  } else {
    product.storage = *storageOf(context.in(operand).element);
    product.weights = context.in(operand).data;
    product.transposeWeights = transposed;
  }
}

MatrixBatch::MatrixBatch(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> aShape,
                         int64_t aMatrixElements, llvm::ArrayRef<int64_t> weightShape,
                         int64_t weightMatrixElements)
    : extents(shape.begin(), shape.end()) {
  const auto strides = [&](llvm::ArrayRef<int64_t> own, int64_t elements) {
    const auto view = TensorView::contiguous(ElementType::Float, own, nullptr);
    Extents result = broadcastStrides(view, shape);
    for (int64_t& stride : result)
      stride *= elements;
    return result;
  };
  aStrides = strides(aShape, aMatrixElements);
  weightStrides = strides(weightShape, weightMatrixElements);
  for (int64_t extent : extents)
    matrices *= extent;
  for (int64_t extent : aShape)
    aMatrices *= extent;
}

MatrixBatch::Offsets MatrixBatch::at(int64_t index) const {
  Offsets offsets;
  for (size_t axis = extents.size(); axis > 0; --axis) {
    const int64_t position = index % extents[axis - 1];
    index /= extents[axis - 1];
    offsets.a += position * aStrides[axis - 1];
    offsets.weights += position * weightStrides[axis - 1];
  }
  return offsets;
}

llvm::Error multiplyMatrices(KernelContext& context, const LinearProduct& product,
                             const MatrixBatch& batch) {
  assert(!product.blocks || batch.count() <= 1);
  if (product.rows == 0 || product.columns == 0 || batch.count() == 0)
    return llvm::Error::success();
  LinearProduct p = product;
  // The transpose of a single row or column has the same storage.
  if (p.rows == 1)
    p.transposeA = false;
  if (p.columns == 1)
    p.transposeWeights = true;
  if (p.rows > fewRows)
    return multiplyManyRows(context, p, batch);
  if (p.transposeA)
    if (llvm::Error error = transposeActivations(context, p, batch.leftMatrices()))
      return error;
  return multiplyFewRows(context, p, batch);
}

} // namespace kvopt::kernels
