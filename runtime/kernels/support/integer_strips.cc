// Regions of a product of codes. With a' = a or a + 128, which is unsigned, b' = b or b - 128,
// which is signed, and their zero points:
//
//   sum_k (a' - za)(b' - zb) = sum_k a' b' - za (sum_k b' - K zb) - zb sum_k a'
//
// modulo 2^32.
#include "runtime/kernels/support/integer_strips.h"

#include "runtime/exec/constant_context.h"
#include "runtime/exec/constant_weights.h"
#include "runtime/kernels/support/packed_product.h"

#include <algorithm>
#include <atomic>
#include <optional>

namespace kvopt::kernels {
using namespace ir;
using namespace linear;
using namespace runtime;

namespace {

constexpr int64_t stripWidth = 64;
constexpr int64_t mostRegionColumns = 256;
constexpr int64_t mostRegionRows = 256;
/// Number of rows up to which every thread computes one region.
constexpr int64_t fewRegionRows = 16;

int64_t piecesOf(int64_t total, int64_t each) { return (total + each - 1) / each; }
int64_t wholeStrips(int64_t columns) { return piecesOf(columns, stripWidth) * stripWidth; }

/// Extents of regions, and the products of whole and last regions.
class RegionPlan {
public:
  static std::optional<RegionPlan> create(int64_t rows, int64_t inner, int64_t columns,
                                          int64_t threads) {
    RegionPlan plan;
    const bool areFew = rows <= fewRegionRows;
    plan.width =
        wholeStrips(areFew ? piecesOf(columns, threads) : std::min(columns, mostRegionColumns));
    plan.across = piecesOf(columns, plan.width);
    plan.height = piecesOf(rows, piecesOf(rows, mostRegionRows));
    plan.down = piecesOf(rows, plan.height);
    const int64_t lastWidth = wholeStrips(columns - (plan.across - 1) * plan.width);
    const int64_t lastHeight = rows - (plan.down - 1) * plan.height;
    for (const bool isLastRow : {false, true})
      for (const bool isLastColumn : {false, true}) {
        auto& product = plan.products[isLastRow][isLastColumn];
        product =
            PackedProduct::create(PackedProduct::Kind::Codes, isLastRow ? lastHeight : plan.height,
                                  inner, isLastColumn ? lastWidth : plan.width);
        if (!product)
          return std::nullopt;
        plan.libraryBytes =
            std::max(plan.libraryBytes, static_cast<int64_t>(product->scratchBytes()));
      }
    return plan;
  }

  int64_t regions() const { return across * down; }
  /// Working memory for one region: its sums, then that of the library.
  int64_t sumBytes() const { return height * width * int64_t{sizeof(int32_t)}; }
  int64_t regionBytes() const { return sumBytes() + libraryBytes; }
  const PackedProduct& productOf(int64_t row, int64_t column) const {
    return *products[row + 1 == down][column + 1 == across];
  }

  int64_t width = 0, height = 0, across = 0, down = 0;

private:
  int64_t libraryBytes = 0;
  std::shared_ptr<const PackedProduct> products[2][2];
};

/// Terms of the zero points.
struct ZeroTerms {
  uint32_t* columns = nullptr; ///< sum_k b' - K zb, for each column
  uint32_t* bZeros = nullptr;  ///< zb for each column; null if all are 0
  uint32_t* rowSums = nullptr; ///< sum_k a' for each row, if there are bZeros
  uint32_t aZero = 0;          ///< za, unless rows have their own
};

class StripCall {
public:
  StripCall(const IntegerProduct& computed, const RegionPlan& regionPlan)
      : p(computed), plan(regionPlan), w(*computed.b.strips) {}

  static int64_t bytesBefore(const IntegerProduct& p) {
    return (p.rows * p.inner + 63) / 64 * 64 +
           (2 * p.columns + p.rows) * int64_t{sizeof(uint32_t)} / 64 * 64 + 64;
  }

  void prepare(std::byte* memory) {
    auto* words = reinterpret_cast<uint32_t*>(memory + (p.rows * p.inner + 63) / 64 * 64);
    a = p.a.codes;
    if (p.a.isSigned) {
      auto* copy = reinterpret_cast<uint8_t*>(memory);
      for (int64_t i = 0; i < p.rows * p.inner; ++i)
        copy[i] = p.a.codes[i] ^ 128;
      a = copy;
    }
    terms.columns = words;
    bool hasZeros = false;
    for (int64_t n = 0; n < p.columns; ++n) {
      const auto zero = static_cast<uint32_t>(p.b.zero(n) - (w.isSigned ? 0 : 128));
      hasZeros |= zero != 0;
      words[p.columns + n] = zero;
      words[n] = static_cast<uint32_t>(w.sums[n]) - static_cast<uint32_t>(p.inner) * zero;
    }
    if (hasZeros) {
      terms.bZeros = words + p.columns;
      terms.rowSums = words + 2 * p.columns;
      for (int64_t m = 0; m < p.rows; ++m) {
        uint32_t sum = 0;
        for (int64_t k = 0; k < p.inner; ++k)
          sum += a[m * p.inner + k];
        terms.rowSums[m] = sum;
      }
    }
    if (p.a.hasManyZeros)
      return;
    // One factor for all rows.
    const uint32_t zero = aZero(0);
    for (int64_t n = 0; n < p.columns; ++n)
      words[n] *= zero;
  }

  bool compute(int64_t row, int64_t column, std::byte* memory) const {
    const int64_t firstRow = row * plan.height, first = column * plan.width;
    const int64_t rows = std::min(plan.height, p.rows - firstRow);
    const int64_t columns = std::min(plan.width, p.columns - first);
    const int64_t padded = piecesOf(p.inner, 64) * 64;
    auto* sums = reinterpret_cast<int32_t*>(memory);
    if (!plan.productOf(row, column)
             .run(a + firstRow * p.inner, w.strips + first * padded, sums,
                  memory + plan.sumBytes()))
      return false;
    for (int64_t m = 0; m < rows; ++m)
      finish(firstRow + m, first, columns, sums + m * wholeStrips(columns));
    return true;
  }

private:
  uint32_t aZero(int64_t row) const {
    return static_cast<uint32_t>(p.a.zero(row) + (p.a.isSigned ? 128 : 0));
  }

  void finish(int64_t row, int64_t first, int64_t columns, const int32_t* sums) const {
    int32_t* out = p.out + row * p.columns + first;
    const uint32_t* term = terms.columns + first;
    const uint32_t factor = p.a.hasManyZeros ? aZero(row) : 1;
    if (!terms.bZeros) {
      if (factor == 1)
        for (int64_t n = 0; n < columns; ++n)
          out[n] = static_cast<int32_t>(static_cast<uint32_t>(sums[n]) - term[n]);
      else
        for (int64_t n = 0; n < columns; ++n)
          out[n] = static_cast<int32_t>(static_cast<uint32_t>(sums[n]) - factor * term[n]);
      return;
    }
    const uint32_t* zeros = terms.bZeros + first;
    const uint32_t rowSum = terms.rowSums[row];
    for (int64_t n = 0; n < columns; ++n)
      out[n] = static_cast<int32_t>(static_cast<uint32_t>(sums[n]) - factor * term[n] -
                                    zeros[n] * rowSum);
  }

  const IntegerProduct& p;
  const RegionPlan& plan;
  const CodeStrips& w;
  const uint8_t* a = nullptr;
  ZeroTerms terms;
};

} // namespace

llvm::Error multiplyCodeStrips(KernelContext& context, const IntegerProduct& product,
                               IntegerScratch& scratch) {
  const auto plan =
      RegionPlan::create(product.rows, product.inner, product.columns, context.threads());
  if (!plan)
    return context.error("oneDNN cannot compute the product");
  const int64_t workers = std::min<int64_t>(plan->regions(), context.threads());
  if (!scratch.strips) {
    auto memory = context.scratch(
        static_cast<size_t>(StripCall::bytesBefore(product) + workers * plan->regionBytes()));
    if (!memory)
      return memory.takeError();
    scratch.strips = memory->data();
  }
  StripCall call(product, *plan);
  call.prepare(scratch.strips);
  std::byte* regions = scratch.strips + StripCall::bytesBefore(product);
  std::atomic<int64_t> next{0};
  std::atomic<bool> isComputed{true};
  context.parallelFor(workers, [&](int64_t worker) {
    for (int64_t unit = next.fetch_add(1); unit < plan->regions(); unit = next.fetch_add(1))
      if (!call.compute(unit % plan->down, unit / plan->down,
                        regions + worker * plan->regionBytes()))
        isComputed = false;
  });
  return isComputed ? llvm::Error::success() : context.error("oneDNN cannot compute the product");
}

void setCodes(const KernelContext& context, unsigned index, CodeOperand& operand) {
  const ConstantWeights* constant = context.weights(index);
  operand.isSigned = context.in(index).element == ElementType::Int8;
  if (constant && constant->codes)
    operand.strips = &*constant->codes;
  else
    operand.codes = reinterpret_cast<const uint8_t*>(context.in(index).data);
}

std::shared_ptr<const ConstantWeights> packCodes(const Value& value, ConstantMemory& memory,
                                                 ThreadPool& pool) {
  const TensorData& data = *value.constant();
  const llvm::ArrayRef<int64_t> shape = data.shape();
  const bool isSigned = data.elementType() == ElementType::Int8;
  constexpr int64_t most = int64_t{1} << 30;
  if ((!isSigned && data.elementType() != ElementType::UInt8) || shape.size() != 2 ||
      std::min(shape[0], shape[1]) <= 0 || std::max(shape[0], shape[1]) > most ||
      !PackedProduct::create(PackedProduct::Kind::Codes, 1, shape[0], wholeStrips(shape[1])))
    return nullptr;
  const TensorRef constant = value.constantRef();
  auto bytes = constant->bytes();
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return nullptr;
  }
  if (static_cast<int64_t>(bytes->size()) < shape[0] * shape[1])
    return nullptr;
  auto weights = std::make_shared<ConstantWeights>();
  const auto take = [&](int64_t count) -> std::byte* {
    llvm::Expected<ConstantMemory::Block> block = memory.take(count);
    if (!block) {
      llvm::consumeError(block.takeError());
      return nullptr;
    }
    weights->owners.push_back(std::move(block->owner));
    return block->data;
  };
  CodeStrips codes;
  codes.inner = shape[0];
  codes.columns = shape[1];
  codes.isSigned = isSigned;
  auto* strips = reinterpret_cast<int8_t*>(take(codeStripBytes(codes.inner, codes.columns)));
  auto* sums = reinterpret_cast<int32_t*>(take(codes.columns * int64_t{sizeof(int32_t)}));
  if (!strips || !sums)
    return nullptr;
  pool.parallelFor(piecesOf(codes.columns, stripWidth), [&](int64_t strip) {
    packCodeStrips(reinterpret_cast<const uint8_t*>(bytes->data()), isSigned, codes.inner,
                   codes.columns, strip * stripWidth,
                   std::min((strip + 1) * stripWidth, codes.columns), strips, sums);
  });
  codes.strips = strips;
  codes.sums = sums;
  weights->codes = codes;
  weights->described = TensorView::contiguous(data.elementType(), shape, nullptr);
  return weights;
}

} // namespace kvopt::kernels
