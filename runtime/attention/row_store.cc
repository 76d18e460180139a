// Checking, reading and writing of the rows of one cache.
#include "runtime/attention/row_store.h"

#include "ir/cache_layout.h"
#include "runtime/attention/attention_heads.h"
#include "runtime/exec/input_binding.h"
#include "runtime/memory/coded_row.h"
#include "runtime/memory/element_storage.h"
#include "support/format.h"

#include <cstring>

namespace kvopt::runtime {
using namespace ir;
using namespace simd;

namespace {

/// Rows, or their scales, of one batch row and head. Strides are in bytes.
struct RowPlane {
  std::byte* data;
  int64_t slotStride;
  int64_t columnStride;
  int64_t width; ///< in elements
  int64_t elementBytes;

  std::byte* slot(int64_t index) const { return data + index * slotStride; }
  int64_t rowBytes() const { return width * elementBytes; }
  bool areColumnsTogether() const { return columnStride == elementBytes; }
  bool areRowsTogether() const { return areColumnsTogether() && slotStride == rowBytes(); }
};

/// Plane of rows [B,G,C,W] or, transposed, [B,G,W,C], or of scales [B,G,C].
RowPlane planeOf(const TensorView& view, bool isTransposed, int64_t unit) {
  const auto bytes = static_cast<int64_t>(*byteWidth(view.element));
  const int64_t batch = unit / view.shape[1], head = unit % view.shape[1];
  std::byte* data = view.data + (batch * view.strides[0] + head * view.strides[1]) * bytes;
  if (view.rank() == 3)
    return {data, view.strides[2] * bytes, bytes, 1, bytes};
  const unsigned slot = isTransposed ? 3 : 2, column = isTransposed ? 2 : 3;
  return {data, view.strides[slot] * bytes, view.strides[column] * bytes, view.shape[column],
          bytes};
}

void copyBytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes != 0)
    std::memcpy(to, from, static_cast<size_t>(bytes));
}

/// Copies `count` rows between planes with the same width and element type.
void copyRows(const RowPlane& to, int64_t toSlot, const RowPlane& from, int64_t fromSlot,
              int64_t count) {
  if (to.areRowsTogether() && from.areRowsTogether())
    return copyBytes(to.slot(toSlot), from.slot(fromSlot), count * to.rowBytes());
  for (int64_t row = 0; row < count; ++row) {
    std::byte* target = to.slot(toSlot + row);
    const std::byte* source = from.slot(fromSlot + row);
    if (to.areColumnsTogether() && from.areColumnsTogether()) {
      copyBytes(target, source, to.rowBytes());
      continue;
    }
    for (int64_t column = 0; column < to.width; ++column)
      copyBytes(target + column * to.columnStride, source + column * from.columnStride,
                to.elementBytes);
  }
}

} // namespace

RowStore::RowStore(const KernelContext& context, const CacheOperator& which, unsigned ofSide,
                   unsigned pastOperand)
    : op(which), side(ofSide), fresh(&context.in(CacheOperator::fresh(ofSide))),
      past(&context.in(pastOperand)) {}

llvm::Expected<RowStore> RowStore::create(const KernelContext& context, const CacheOperator& op,
                                          unsigned side) {
  RowStore store(context, op, side, op.past(side));
  if (llvm::Error error = store.check(context))
    return error;
  if (!op.hasCodes())
    return store;
  if (!storageOf(store.fresh->element))
    return context.error(formatted("new {} of element type {} are not supported", store.name(),
                                   onnxName(store.fresh->element)));
  if (llvm::Error error = store.readScales(context, op.pastScale(side)))
    return error;
  return store;
}

llvm::Expected<RowStore> RowStore::ofBlock(const KernelContext& context, const CacheOperator& op,
                                           unsigned side, unsigned index, unsigned each) {
  RowStore store(context, op, side, op.block(side, each) + index);
  if (llvm::Error error = store.check(context))
    return error;
  if (op.hasCodes())
    if (llvm::Error error = store.readScales(context, op.scaleBlock(side, each) + index))
      return error;
  return store;
}

ElementType RowStore::held() const { return op.code ? op.code->element : fresh->element; }

llvm::Error RowStore::check(const KernelContext& context) {
  const char* axisName = CacheOperator::axisName(side);
  const int64_t axis = context.node().intAttr(axisName, 2);
  const auto layout = CacheLayout::bySequenceAxis(past->rank(), axis);
  if (fresh->rank() != 4 || !layout)
    return context.error(formatted("new rows of rank {} and a cache of rank {} of the {}, {} {}, "
                                   "are not supported",
                                   fresh->rank(), past->rank(), name(), axisName, axis));
  axes = {layout->batchAxis(), layout->headAxis(), layout->sequenceAxis(), layout->columnAxis()};
  if (past->element != held())
    return context.error(formatted("new rows and cache of the {} have element types {} and {}",
                                   name(), onnxName(fresh->element), onnxName(past->element)));
  int64_t heads = 0;
  const int64_t batches = past->shape[axes.batch];
  const bool fits =
      axes.batch == axes.head
          ? !__builtin_mul_overflow(fresh->shape[0], fresh->shape[1], &heads) && heads == batches
          : fresh->shape[0] == batches && fresh->shape[1] == past->shape[axes.head];
  if (!fits)
    return context.error(
        formatted("new rows [{}, {}, …] and cache of the {} differ in batch size or heads",
                  fresh->shape[0], fresh->shape[1], name()));
  return checkWidth(context);
}

llvm::Error RowStore::checkWidth(const KernelContext& context) const {
  const bool isPacked = op.code && op.code->isPacked();
  const int64_t kept = past->shape[axes.column];
  if (kept != (op.code ? op.code->elementsOf(width()) : width()))
    return context.error(formatted("new rows of the {} are {} wide, those of the cache {}{}",
                                   name(), width(), kept, isPacked ? " bytes" : ""));
  if (isPacked && isTransposed())
    return context.error(
        formatted("{} of the {} must have their columns side by side", op.code->rows, name()));
  return llvm::Error::success();
}

llvm::Error RowStore::readScales(const KernelContext& context, unsigned operand) {
  pastScale = &context.in(operand);
  Extents expected = past->shape;
  expected[axes.column] = 1;
  return checkScales(context, name(), *pastScale, expected);
}

TensorView RowStore::slotsOf(const TensorView& cache, bool swapsAxes) const {
  const int64_t headStride = cache.strides[axes.head];
  const int64_t batchStride =
      axes.batch == axes.head ? fresh->shape[1] * headStride : cache.strides[axes.batch];
  unsigned third = axes.slot, last = axes.column;
  if (swapsAxes)
    std::swap(third, last);
  return {cache.element,
          {fresh->shape[0], fresh->shape[1], cache.shape[third], cache.shape[last]},
          {batchStride, headStride, cache.strides[third], cache.strides[last]},
          cache.data};
}

CacheSlots RowStore::slotsOf(const TensorView& cache, const TensorView* scales) const {
  CacheSlots slots{slotsOf(cache, isTransposed()), std::nullopt, isTransposed()};
  if (scales) {
    slots.scales = slotsOf(*scales, false);
    slots.scales->shape.pop_back();
    slots.scales->strides.pop_back();
  }
  return slots;
}

llvm::Expected<CacheSlots> RowStore::present(KernelContext& context) const {
  auto rows = presentStorage(context, op.present(side), op.past(side));
  if (!rows)
    return rows.takeError();
  if (!op.hasCodes())
    return slotsOf(*rows, nullptr);
  auto scales = presentStorage(context, op.presentScale(side), op.pastScale(side));
  if (!scales)
    return scales.takeError();
  return slotsOf(*rows, &*scales);
}

llvm::Expected<CacheSlots> RowStore::scratchSlots(KernelContext& context, int64_t count) const {
  const int64_t batches = fresh->shape[0], heads = fresh->shape[1];
  auto rows =
      scratchTensor(context, past->element, {batches, heads, count, past->shape[axes.column]});
  if (!rows)
    return rows.takeError();
  CacheSlots slots{std::move(*rows)};
  if (op.hasCodes()) {
    auto scales = scratchTensor(context, ElementType::Float, {batches, heads, count});
    if (!scales)
      return scales.takeError();
    slots.scales = std::move(*scales);
  }
  return slots;
}

/// Writes rows of one batch row and head.
void RowStore::writeCodes(const CacheSlots& to, int64_t unit, const RowSpan& span) const {
  const FloatStorage storage = *storageOf(fresh->element);
  const RowPlane from = planeOf(*fresh, false, unit);
  const RowPlane rows = planeOf(to.rows, to.isTransposed, unit);
  const RowPlane scales = planeOf(*to.scales, false, unit);
  // A row whose columns are far apart is made in a row of its own.
  llvm::SmallVector<std::byte, 1024> apart(
      to.isTransposed ? static_cast<size_t>(width() * rows.elementBytes) : 0);
  for (int64_t i = 0; i < span.count; ++i) {
    std::byte* codes = rows.slot(span.slot + i);
    *reinterpret_cast<float*>(scales.slot(span.slot + i)) =
        encodeRow(*op.code, from.slot(span.first + i), storage, width(),
                  to.isTransposed ? apart.data() : codes);
    for (int64_t column = 0; to.isTransposed && column < width(); ++column)
      copyBytes(codes + column * rows.columnStride, apart.data() + column * rows.elementBytes,
                rows.elementBytes);
  }
}

int64_t RowStore::write(KernelContext& context, const CacheSlots& to, SpansOf spansOf) const {
  const int64_t batches = fresh->shape[0], heads = fresh->shape[1];
  auto writeUnit = [&](int64_t unit) {
    for (const RowSpan& span : spansOf(unit / heads))
      if (op.hasCodes())
        writeCodes(to, unit, span);
      else
        copyRows(planeOf(to.rows, to.isTransposed, unit), span.slot, planeOf(*fresh, false, unit),
                 span.first, span.count);
  };
  // Too few elements to be worth waking another thread.
  constexpr int64_t fewElements = 32768;
  if (fresh->elementCount() > fewElements)
    context.parallelFor(batches * heads, writeUnit);
  else
    for (int64_t unit = 0; unit < batches * heads; ++unit)
      writeUnit(unit);

  int64_t rows = 0;
  for (int64_t batch = 0; batch < batches; ++batch)
    for (const RowSpan& span : spansOf(batch))
      rows += span.count;
  const auto rowBytes = past->shape[axes.column] * int64_t{*byteWidth(past->element)} +
                        (op.hasCodes() ? int64_t{sizeof(float)} : 0);
  return rows * heads * rowBytes;
}

void RowStore::copyPast(KernelContext& context, const CacheSlots& to,
                        llvm::ArrayRef<RowSpan> spans) const {
  const CacheSlots from = pastSlots();
  context.parallelFor(fresh->shape[0] * fresh->shape[1], [&](int64_t unit) {
    for (const auto& [first, slot, count] : spans) {
      copyRows(planeOf(to.rows, to.isTransposed, unit), first,
               planeOf(from.rows, from.isTransposed, unit), slot, count);
      if (from.scales)
        copyRows(planeOf(*to.scales, false, unit), first, planeOf(*from.scales, false, unit), slot,
                 count);
    }
  });
}

llvm::Error checkScales(const KernelContext& context, const char* name, const TensorView& scales,
                        const Extents& expected) {
  if (scales.element == ElementType::Float && scales.shape == expected)
    return llvm::Error::success();
  return context.error(formatted("scales of the {} are {} {}, they should be float {}", name,
                                 onnxName(scales.element), extentsText(scales.shape),
                                 extentsText(expected)));
}

} // namespace kvopt::runtime
