// Reading a ring of codes in the order of positions, and writing to it.
#include "runtime/attention/quantized_ring.h"

#include "runtime/attention/attention_heads.h"

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

llvm::Expected<QuantizedRing> QuantizedRing::create(const KernelContext& context,
                                                    const QuantizedCache::Operands& operands,
                                                    int64_t past) {
  auto rows = QuantizedCache::create(context, operands);
  if (!rows)
    return rows.takeError();
  auto positions = ringPositions(context, rows->codes(), operands.codes.name, past);
  if (!positions)
    return positions.takeError();
  return QuantizedRing(std::move(*rows), *positions);
}

llvm::Expected<CodeSlots> QuantizedRing::inOrder(KernelContext& context) const {
  const CodeSlots held = rows.pastSlots();
  const Extents& fresh = cache().freshRows().shape;
  const int64_t count = places.kept() + cache().rows();
  auto codes =
      scratchTensor(context, held.codes.element,
                    {fresh[0], fresh[1], count, held.codes.shape[held.isTransposed ? 2 : 3]});
  if (!codes)
    return codes.takeError();
  auto scales = scratchTensor(context, ElementType::Float, {fresh[0], fresh[1], count, 1});
  if (!scales)
    return scales.takeError();
  TensorView heldScales = held.scales;
  heldScales.shape.push_back(1);
  heldScales.strides.push_back(1);
  copyKept(context, held.codes, held.isTransposed, places, *codes);
  copyKept(context, heldScales, false, places, *scales);
  scales->shape.pop_back();
  scales->strides.pop_back();
  CodeSlots ordered{std::move(*codes), std::move(*scales)};
  rows.writeRows(context, ordered, [&](int64_t) {
    return llvm::SmallVector<RowSpan, 2>{{0, places.kept(), cache().rows()}};
  });
  return ordered;
}

llvm::Expected<CodeSlots> QuantizedRing::write(KernelContext& context) const {
  auto present = rows.present(context);
  if (!present)
    return present;
  rows.writeRows(context, *present, [&](int64_t) { return places.newSpans(cache().rows()); });
  const Extents& fresh = cache().freshRows().shape;
  context.noteCacheWrite(fresh[0] * fresh[1] * std::min(cache().rows(), places.slotCount) *
                         rows.rowBytes());
  return present;
}

} // namespace kvopt::runtime
