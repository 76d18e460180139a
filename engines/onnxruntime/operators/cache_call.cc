// Checks of caches and new rows, and writing of rows.
#include "engines/onnxruntime/operators/cache_call.h"

#include "runtime/simd/four_bit_rows.h"
#include "runtime/simd/quantize_row.h"

#include <cstring>

namespace kvopt::onnxruntime {
using namespace simd;

namespace {

constexpr ElementType codeBytes = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
constexpr ElementType codePairs = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;

} // namespace

CacheRows CacheAttentionCall::freshRows(unsigned place) const {
  const Tensor fresh = call.input(place);
  if (fresh.rank() != 4 || fresh.shape[0] != batches() || fresh.shape[2] != rows())
    call.fail("new rows " + textOf(fresh.shape) + " do not match the query " +
              textOf(operands.query.shape));
  return *cacheRows(fresh, 2, batches(), fresh.shape[1]);
}

CacheRows CacheAttentionCall::slotsOf(const Tensor& cache, unsigned side, int64_t heads) const {
  const auto slots = cacheRows(cache, settings.axes[side], batches(), heads);
  if (!slots)
    call.fail("a cache " + textOf(cache.shape) + " with the sequence on axis " +
              std::to_string(settings.axes[side]) + " does not hold " + std::to_string(batches()) +
              " batch rows of " + std::to_string(heads) + " heads");
  return *slots;
}

void CacheAttentionCall::setWidths(const CacheRows& key, const CacheRows& value) {
  call.require(key.heads == value.heads, "keys and values differ in their number of heads");
  call.require(key.width == operands.view.keyWidth, "the query and the keys differ in width");
  operands.setHeads(call, key.heads);
  operands.view.valueWidth = form.isLatent() ? settings.valueWidth : value.width;
}

int64_t CacheAttentionCall::offsetOfValues(int64_t columns, bool isPacked) const {
  if (!form.isLatent())
    return 0;
  const int64_t offset = settings.valueOffset, width = settings.valueWidth;
  if (offset < 0 || width < 1 || offset > columns || width > columns - offset)
    call.fail("values in " + std::to_string(width) + " columns from " + std::to_string(offset) +
              " on are not in rows of " + std::to_string(columns));
  if (!isPacked)
    return offset;
  const FourBitRow row{columns};
  const int64_t group = 2 * row.halfGroup();
  call.require(offset % group == 0 && (width % group == 0 || offset + width == columns) &&
                   FourBitRow{width}.halfGroup() == row.halfGroup(),
               "v_offset and v_width are not whole groups of four-bit codes");
  return offset / group * row.groupBytes();
}

CacheCall::CacheCall(Call& ofNode, const CacheSettings& of, const CopyNotice& copyNotice)
    : CacheAttentionCall(ofNode, of), notice(copyNotice) {
  for (unsigned side = 0; side < form.sides(); ++side)
    open(side);
  checkSides();
  setWidths(keys().fresh, values().fresh);
  valueOffset = offsetOfValues(keys().fresh.width, isPacked());
  if (isPacked())
    operands.view.codeForm = CodeForm::fourBitRows;
  else if (!form.hasCodes())
    operands.setRowType(call, keys().past.type);
}

bool CacheCall::isPacked() const { return form.hasCodes() && sides[0].past.type == codePairs; }

void CacheCall::open(unsigned index) {
  CacheSide& side = sides[index];
  side.fresh = freshRows(ir::CacheOperatorForm::fresh(index));
  side.past = call.input(form.past(index));
  const bool hasType = form.hasCodes()
                           ? (side.past.type == codeBytes || isPacked()) &&
                                 side.past.type == sides[0].past.type && storageOf(side.fresh.type)
                           : side.past.type == side.fresh.type;
  if (!hasType)
    call.fail(std::string("new rows are ") + elementName(side.fresh.type) +
              ", those of the cache " + elementName(side.past.type));
  side.before.rows = slotsOf(side.past, index, side.fresh.heads);
  const int64_t width = isPacked() ? FourBitRow{side.fresh.width}.bytes() : side.fresh.width;
  if (side.before.rows.width != width || (isPacked() && side.before.rows.isTransposed()))
    call.fail("a cache " + textOf(side.past.shape) + " does not hold new rows of " +
              std::to_string(side.fresh.width) + " columns");
  if (!form.hasCodes())
    return;
  side.pastScale = call.input(form.pastScale(index));
  side.before.scales = slotsOf(side.pastScale, index, side.fresh.heads);
  if (side.pastScale.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT || side.before.scales.width != 1 ||
      side.before.scales.slots != side.before.rows.slots)
    call.fail("scales " + textOf(side.pastScale.shape) + " for a cache " + textOf(side.past.shape) +
              "; they should be float, one per row");
}

void CacheCall::checkSides() {
  call.require(keys().before.rows.slots == values().before.rows.slots,
               "the caches of keys and values differ in capacity");
  call.require(!values().before.rows.isTransposed(),
               "values with the sequence on the last axis are not supported");
  call.require(keys().past.type == values().past.type,
               "the caches of keys and values differ in element type");
}

void CacheCall::setSlots(const Slots& key, const Slots& value) {
  AttentionView& view = operands.view;
  view.keyTransposed = key.rows.isTransposed();
  view.key = key.rows.data;
  view.keyStrides = key.rows.strides();
  if (view.keyTransposed)
    view.keyStrides.row = key.rows.columnStride;
  view.value = value.rows.data + valueOffset * elementBytes(value.rows.type);
  view.valueStrides = value.rows.strides();
  if (!form.hasCodes())
    return;
  view.keyScales = reinterpret_cast<const float*>(key.scales.data);
  view.valueScales = reinterpret_cast<const float*>(value.scales.data);
  view.keyScaleStrides = key.scales.strides();
  view.valueScaleStrides = value.scales.strides();
}

void CacheCall::openPresents() {
  for (unsigned index = 0; index < form.sides(); ++index) {
    CacheSide& side = sides[index];
    const Present present =
        presentOf(call, form.present(index), &side.past, side.past.type, side.past.shape, notice);
    side.after.rows = slotsOf(present.tensor, index, side.fresh.heads);
    side.isInPlace = present.isInPlace;
    if (!form.hasCodes())
      continue;
    const Present scales = presentOf(call, form.presentScale(index), &side.pastScale,
                                     side.pastScale.type, side.pastScale.shape, notice);
    side.after.scales = slotsOf(scales.tensor, index, side.fresh.heads);
    call.require(scales.isInPlace == present.isInPlace,
                 "of a cache and its scales, only one is bound as past and present");
  }
}

Slots CacheCall::orderedSlots(const CacheSide& side, int64_t count) {
  const int64_t heads = side.fresh.heads;
  Slots slots;
  const Tensor held =
      call.scratchTensor(side.past.type, {batches(), heads, count, side.before.rows.width});
  slots.rows = *cacheRows(held, 2, batches(), heads);
  if (form.hasCodes()) {
    const Tensor scales = call.scratchTensor(side.pastScale.type, {batches(), heads, count, 1});
    slots.scales = *cacheRows(scales, 2, batches(), heads);
  }
  return slots;
}

void CacheCall::copySpan(const Slots& to, const Slots& from, const SlotSpan& span, int64_t batch,
                         int64_t head) const {
  copySlots(to.rows, span.first, from.rows, span.slot, span.count, batch, head);
  if (form.hasCodes())
    copySlots(to.scales, span.first, from.scales, span.slot, span.count, batch, head);
}

void CacheCall::fill(const CacheSide& side, int64_t valid, int64_t end, int64_t batch,
                     int64_t head) const {
  if (side.isInPlace)
    return;
  copySpan(side.after, side.before, {0, 0, valid}, batch, head);
  clearSlots(side.after.rows, end, batch, head);
  if (form.hasCodes())
    clearSlots(side.after.scales, end, batch, head);
}

void CacheCall::writeSpan(const CacheSide& side, const Slots& to, const SlotSpan& span,
                          int64_t batch, int64_t head) const {
  if (!form.hasCodes())
    return copySlots(to.rows, span.slot, side.fresh, span.first, span.count, batch, head);
  const FloatStorage storage = *storageOf(side.fresh.type);
  // A row whose columns are far apart is made in a row of its own.
  std::vector<std::byte> apart(to.rows.isTransposed() ? static_cast<size_t>(side.fresh.width) : 0);
  for (int64_t i = 0; i < span.count; ++i) {
    const std::byte* numbers = side.fresh.slot(batch, head, span.first + i);
    std::byte* codes = to.rows.slot(batch, head, span.slot + i);
    std::byte* target = to.rows.isTransposed() ? apart.data() : codes;
    const float scale = isPacked()
                            ? quantizeFourBitRow(numbers, storage, side.fresh.width,
                                                 reinterpret_cast<uint8_t*>(target))
                            : quantizeRow(numbers, storage, static_cast<size_t>(side.fresh.width),
                                          reinterpret_cast<int8_t*>(target));
    std::memcpy(to.scales.slot(batch, head, span.slot + i), &scale, sizeof scale);
    for (size_t column = 0; column < apart.size(); ++column)
      codes[static_cast<int64_t>(column) * to.rows.columnStride] = apart[column];
  }
}

} // namespace kvopt::onnxruntime
