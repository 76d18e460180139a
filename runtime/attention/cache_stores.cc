// Parts that attention over all kinds of caches shares.
#include "runtime/attention/cache_stores.h"

#include "runtime/attention/decoded_rows.h"
#include "support/format.h"
#include "support/four_bit_row.h"

namespace kvopt::runtime {
using namespace ir;

llvm::Expected<ValueColumns> ValueColumns::of(const KernelContext& context, const CacheOperator& op,
                                              int64_t columns) {
  const bool isPacked = op.code == &fourBitRows;
  const FourBitRow row{columns};
  if (!op.isLatent())
    return ValueColumns{columns, isPacked ? row.bytes() : columns, 0};
  const int64_t offset = context.node().intAttr("v_offset", 0);
  const int64_t width = context.node().intAttr("v_width", 0);
  if (offset < 0 || width < 1 || offset > columns || width > columns - offset)
    return context.error(
        formatted("values in {} columns from {} on are not in rows of {}", width, offset, columns));
  if (!isPacked)
    return ValueColumns{width, width, offset};
  const FourBitRow values{width};
  const int64_t group = 2 * row.halfGroup();
  if (offset % group != 0 || (width % group != 0 && offset + width != columns) ||
      values.halfGroup() != row.halfGroup())
    return context.error(formatted("values in {} columns from {} on are not whole groups of the "
                                   "{} four-bit codes of a row",
                                   width, offset, columns));
  return ValueColumns{width, values.bytes(), offset / group * row.groupBytes()};
}

llvm::Expected<CacheStores> CacheStores::open(const KernelContext& context,
                                              const CacheOperator& op) {
  CacheStores caches(op);
  for (unsigned side = 0; side < op.sides(); ++side) {
    auto store = RowStore::create(context, op, side);
    if (!store)
      return store.takeError();
    caches.stores.push_back(std::move(*store));
  }
  if (caches.values().isTransposed())
    return context.error(formatted("{} with the sequence on the last axis are not supported",
                                   op.isLatent() ? "rows" : "values"));
  if (llvm::Error error = caches.checkRows(context))
    return error;
  auto columns = ValueColumns::of(context, op, caches.values().width());
  if (!columns)
    return columns.takeError();
  caches.columns = *columns;
  return caches;
}

llvm::Error CacheStores::checkRows(const KernelContext& context) const {
  const TensorView& query = context.in(CacheOperator::query);
  if (values().rows() == rows() && query.rank() == 4 && query.shape[2] == rows())
    return llvm::Error::success();
  if (op.isLatent())
    return context.error(formatted("{} new rows do not match the query's rows in number", rows()));
  return context.error(formatted("{} new key rows, {} new value rows and the query's rows differ "
                                 "in number",
                                 rows(), values().rows()));
}

llvm::Error CacheStores::attendTo(KernelContext& context, unsigned side, CacheSlots slots,
                                  AttentionOperands& operands) const {
  if (op.code && !op.code->hasKernels()) {
    auto numbers = decodedRows(
        context, *op.code, {std::move(slots.rows), std::move(*slots.scales), slots.isTransposed},
        stores[side].width());
    if (!numbers)
      return numbers.takeError();
    slots = {std::move(*numbers), std::nullopt, false};
  }
  if (side == 0) {
    operands.key = slots.rows;
    operands.keyScales = slots.scales;
    operands.keyTransposed = slots.isTransposed;
  }
  if (side + 1 != op.sides())
    return llvm::Error::success();
  operands.value = std::move(slots.rows);
  columns.narrow(operands.value);
  operands.valueScales = std::move(slots.scales);
  operands.fourBitColumns = columns.width;
  if (!op.hasCodes())
    readBytesAsNumbers(operands);
  return llvm::Error::success();
}

llvm::Error CacheStores::attendToPasts(KernelContext& context, AttentionOperands& operands) const {
  for (unsigned side = 0; side < op.sides(); ++side)
    if (llvm::Error error = attendTo(context, side, stores[side].pastSlots(), operands))
      return error;
  return llvm::Error::success();
}

llvm::Error CacheStores::attendInOrder(KernelContext& context, llvm::ArrayRef<RowSpan> spans,
                                       AttentionOperands& operands) const {
  int64_t kept = 0;
  for (const RowSpan& span : spans)
    kept += span.count;
  const RowSpan fresh{0, kept, rows()};
  for (unsigned side = 0; side < op.sides(); ++side) {
    const RowStore& store = stores[side];
    auto slots = store.scratchSlots(context, kept + rows());
    if (!slots)
      return slots.takeError();
    store.copyPast(context, *slots, spans);
    store.write(context, *slots, [&](int64_t) { return llvm::SmallVector<RowSpan, 2>{fresh}; });
    if (llvm::Error error = attendTo(context, side, std::move(*slots), operands))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error CacheStores::write(KernelContext& context, RowStore::SpansOf spansOf,
                               AttentionOperands& operands) const {
  llvm::SmallVector<CacheSlots, 2> presents;
  for (const RowStore& store : stores) {
    auto present = store.present(context);
    if (!present)
      return present.takeError();
    presents.push_back(std::move(*present));
  }
  for (unsigned side = 0; side < op.sides(); ++side) {
    context.noteCacheWrite(stores[side].write(context, presents[side], spansOf));
    if (llvm::Error error = attendTo(context, side, std::move(presents[side]), operands))
      return error;
  }
  return llvm::Error::success();
}

llvm::Expected<TensorView> CacheStores::output(KernelContext& context) const {
  const TensorView& query = context.in(CacheOperator::query);
  return context.output(CacheOperator::output, query.element,
                        {query.shape[0], query.shape[1], query.shape[2], columns.width});
}

} // namespace kvopt::runtime
