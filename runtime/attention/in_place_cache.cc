// Checking and writing of caches.
#include "runtime/attention/in_place_cache.h"

#include "runtime/attention/past_lengths.h"
#include "support/format.h"
#include "support/four_bit_row.h"

#include <cstring>

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

llvm::Expected<TensorView> presentStorage(KernelContext& context, unsigned result,
                                          unsigned operand) {
  if (context.wants(result))
    return context.outputInPlace(result, operand);
  const TensorView& past = context.in(operand);
  auto memory = context.scratch(static_cast<size_t>(past.byteSize()));
  if (!memory)
    return memory.takeError();
  if (!memory->empty())
    std::memcpy(memory->data(), past.data, memory->size());
  return TensorView::contiguous(past.element, past.shape, memory->data());
}

llvm::Expected<InPlaceCache> InPlaceCache::create(const KernelContext& context,
                                                  const Operands& operands) {
  InPlaceCache cache;
  cache.operands = operands;
  cache.fresh = &context.in(operands.fresh);
  cache.past = &context.in(operands.past);
  const TensorView& fresh = *cache.fresh;
  const TensorView& past = *cache.past;
  int64_t axis = context.node().intAttr(operands.axisName, 2);
  auto layout = CacheLayout::bySequenceAxis(past.rank(), axis);
  if (fresh.rank() != 4 || !layout)
    return context.error(fmt::format("new rows of rank {} and a cache of rank {} of the {}, {} {}, "
                                     "are not supported",
                                     fresh.rank(), past.rank(), operands.name, operands.axisName,
                                     axis));
  cache.layout = std::move(*layout);
  if (past.element != (operands.held == ElementType::Undefined ? fresh.element : operands.held))
    return context.error(fmt::format("new rows and cache of the {} have element types {} and {}",
                                     operands.name, onnxName(fresh.element),
                                     onnxName(past.element)));
  int64_t heads = 0;
  const int64_t rows = past.shape[cache.layout.batchAxis()];
  bool fits = cache.layout.hasFoldedHeads()
                  ? !__builtin_mul_overflow(fresh.shape[0], fresh.shape[1], &heads) && heads == rows
                  : fresh.shape[0] == rows && fresh.shape[1] == past.shape[cache.layout.headAxis()];
  if (!fits)
    return context.error(
        fmt::format("new rows [{}, {}, …] and cache of the {} differ in batch size or heads",
                    fresh.shape[0], fresh.shape[1], operands.name));
  const int64_t width = past.shape[cache.layout.columnAxis()];
  const bool isPacked = operands.held == ElementType::UInt8;
  if (width != (isPacked ? FourBitRow{fresh.shape[3]}.bytes() : fresh.shape[3]))
    return context.error(fmt::format("new rows of the {} are {} wide, those of the cache {}{}",
                                     operands.name, fresh.shape[3], width,
                                     isPacked ? " bytes" : ""));
  if (isPacked && cache.isTransposed())
    return context.error(fmt::format("rows of four-bit codes of the {} must have their columns "
                                     "side by side",
                                     operands.name));
  return cache;
}

TensorView InPlaceCache::slots(const TensorView& cache) const {
  TensorView view = cache;
  const unsigned slot = layout.sequenceAxis();
  const unsigned column = layout.columnAxis();
  const int64_t headStride = cache.strides[layout.headAxis()];
  view.shape = {fresh->shape[0], fresh->shape[1], cache.shape[slot], cache.shape[column]};
  view.strides = {layout.hasFoldedHeads() ? fresh->shape[1] * headStride
                                          : cache.strides[layout.batchAxis()],
                  headStride, cache.strides[slot], cache.strides[column]};
  if (isTransposed()) {
    std::swap(view.shape[2], view.shape[3]);
    std::swap(view.strides[2], view.strides[3]);
  }
  return view;
}

llvm::Expected<TensorView> InPlaceCache::present(KernelContext& context) const {
  auto storage = presentStorage(context, operands.present, operands.past);
  if (!storage)
    return storage.takeError();
  return slots(*storage);
}

void InPlaceCache::writeRows(const TensorView& slots, int64_t batch, const RowSpan& span) const {
  const auto& [first, slot, count] = span;
  const auto elementBytes = static_cast<int64_t>(*byteWidth(fresh->element));
  auto bytes = [&](int64_t elements) { return elements * elementBytes; };
  auto copy = [&](std::byte* to, const std::byte* from, int64_t elements) {
    if (elements != 0)
      std::memcpy(to, from, static_cast<size_t>(bytes(elements)));
  };
  const int64_t slotStride = slots.strides[isTransposed() ? 3 : 2];
  const int64_t columnStride = slots.strides[isTransposed() ? 2 : 3];
  for (int64_t head = 0; head < fresh->shape[1]; ++head) {
    const std::byte* from =
        fresh->data + bytes(batch * fresh->strides[0] + head * fresh->strides[1] + first * width());
    std::byte* to =
        slots.data + bytes(batch * slots.strides[0] + head * slots.strides[1] + slot * slotStride);
    if (!isTransposed() && slotStride == width()) {
      copy(to, from, count * width());
      continue;
    }
    for (int64_t row = 0; row < count; ++row) {
      if (!isTransposed()) {
        copy(to + bytes(row * slotStride), from + bytes(row * width()), width());
        continue;
      }
      for (int64_t column = 0; column < width(); ++column)
        copy(to + bytes(column * columnStride + row * slotStride),
             from + bytes(row * width() + column), 1);
    }
  }
}

llvm::Expected<TensorView> InPlaceCache::append(KernelContext& context,
                                                llvm::ArrayRef<int64_t> lengths) const {
  auto present = this->present(context);
  if (!present)
    return present;
  for (int64_t batch = 0; batch < fresh->shape[0]; ++batch)
    writeRows(*present, batch, {0, lengths[static_cast<size_t>(batch)], rows()});
  context.noteCacheWrite(fresh->byteSize());
  return present;
}

llvm::Expected<CacheLengths> cacheLengths(KernelContext& context, unsigned operand, int64_t batches,
                                          int64_t rows, int64_t capacity) {
  auto before = pastLengths(context, operand, batches);
  if (!before)
    return before.takeError();
  auto after = scratchIntegers(context, before->size());
  if (!after)
    return after.takeError();
  for (size_t i = 0; i < before->size(); ++i) {
    int64_t length = (*before)[i];
    if (length < 0 || __builtin_add_overflow(length, rows, &(*after)[i]) || (*after)[i] > capacity)
      return context.error(fmt::format("past length {} and {} new rows exceed the capacity of {} "
                                       "rows",
                                       length, rows, capacity));
  }
  return CacheLengths{*before, *after};
}

llvm::Expected<AttentionOperands> attentionOperands(const KernelContext& context, unsigned mask,
                                                    unsigned sinks) {
  const Node& node = context.node();
  AttentionOperands operands;
  operands.query = context.in(0);
  operands.mask = context.input(mask);
  operands.sinks = context.input(sinks);
  bool isBoolean = operands.mask && operands.mask->element == ElementType::Bool;
  if (operands.mask && isBoolean != (node.intAttr("mask_boolean", 0) != 0))
    return context.error("mask_boolean does not agree with the mask's element type");
  operands.scale = node.floatAttr("scale", 1.0f);
  operands.causal = node.intAttr("causal", 0) != 0;
  operands.window = node.intAttr("window", 0);
  operands.softcap = node.floatAttr("softcap", 0.0f);
  return operands;
}

} // namespace kvopt::runtime
