// A case of attention over rings of codes: that of caches which hold all rows, of which the last
// are in the rings.
#pragma once

#include "tests/runtime/kernels/quantized_attention_case.h"
#include "tests/runtime/kernels/ring_attention_case.h"

namespace kvopt {

/// The operands of ai.kvopt::RingQuantizedKvSdpa with `slots` slots, for a case of a single past
/// length. Slots that hold no row have the code 127 and the scale NaN.
struct QuantizedRingProblem {
  QuantizedProblem all;
  int64_t slots;
  QuantizedProblem::Side key, value;

  QuantizedRingProblem(const AttentionCase& given, int64_t slotCount)
      : all(holdingAll(given)), slots(slotCount), key(ring(all.key, all.c().keyTransposed)),
        value(ring(all.value, false)) {}

  std::vector<TestTensor> operands() const {
    const AttentionProblem& plain = all.plain;
    return {plain.query, plain.keyNew, plain.valueNew, key.codes,
            key.scales,  value.codes,  value.scales,   plain.pastLength};
  }

  KernelCall call(bool overwritable = true) const {
    const AttentionCase& c = all.c();
    KernelCall result("ai.kvopt::RingQuantizedKvSdpa");
    const std::vector<TestTensor> given = operands();
    for (size_t i = 0; i < given.size(); ++i)
      result.in(given[i].clone(), overwritable && i >= 3 && i <= 6);
    result.results(5);
    c.mask == MaskForm::none ? result.absent() : result.in(all.plain.mask);
    c.sinks ? result.in(all.plain.sinks) : result.absent();
    all.plain.attributes(result);
    result.attr("mask_boolean", c.mask == MaskForm::boolean ? 1 : 0);
    result.attr("key_axis", c.keyTransposed ? 3 : 2);
    return result;
  }

  /// [B,H,S,Dv] by definition: over the kept rows and the new ones of the caches that hold all.
  std::vector<double> expected() const {
    const AttentionCase& c = all.c();
    const int64_t kept = RingLayout(c, slots).kept(), first = c.past[0] - kept;
    const std::vector<int64_t> totals(static_cast<size_t>(c.batches), kept + c.rows);
    simd::AttentionView view = all.view(totals);
    view.totalLength = kept + c.rows;
    view.key = static_cast<const std::byte*>(view.key) + first * (c.keyTransposed ? 1 : c.width);
    view.value = static_cast<const std::byte*>(view.value) + first * c.valueWidth;
    view.keyScales += first;
    view.valueScales += first;
    if (c.mask != MaskForm::none)
      view.mask = static_cast<const std::byte*>(view.mask) +
                  first * view.maskStrides.column *
                      static_cast<int64_t>(*ir::byteWidth(all.plain.mask.element()));
    return all.plain.outputOf(view);
  }

private:
  QuantizedProblem::Side ring(const QuantizedProblem::Side& side, bool transposed) const {
    const RingLayout layout(all.c(), slots);
    QuantizedProblem::Side made;
    made.codes = layout.before(side.presentCodes, transposed, 127);
    made.scales = layout.before(side.presentScales, transposed, kNan);
    made.presentCodes = layout.after(made.codes, side.presentCodes, transposed);
    made.presentScales = layout.after(made.scales, side.presentScales, transposed);
    return made;
  }
};

} // namespace kvopt
