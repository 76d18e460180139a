// A case of attention over a ring: that of a cache which holds all rows, of which the last are in
// the ring.
#pragma once

#include "tests/runtime/kernels/attention_case.h"

namespace kvopt {

/// The operands of ai.kvopt::RingKvSdpa with `slots` slots, for a case of a single past length.
/// Slots that hold no row are NaN.
struct RingProblem {
  AttentionProblem all;
  int64_t slots;
  TestTensor pastKey, pastValue;
  /// By definition.
  TestTensor presentKey, presentValue;

  RingProblem(const AttentionCase& given, int64_t slotCount)
      : all(holdingAll(given)), slots(slotCount) {
    const AttentionCase& c = all.c;
    pastKey = ring(all.presentKey, past(), c.width, c.keyTransposed);
    pastValue = ring(all.presentValue, past(), c.valueWidth, false);
    presentKey = ring(all.presentKey, past() + c.rows, c.width, c.keyTransposed);
    presentValue = ring(all.presentValue, past() + c.rows, c.valueWidth, false);
    const int64_t length = past();
    // What a slot held before it was not written stays.
    keep(presentKey, pastKey, length, c.width, c.keyTransposed);
    keep(presentValue, pastValue, length, c.valueWidth, false);
  }

  int64_t past() const { return all.c.past[0]; }
  int64_t kept() const { return std::min(past(), slots - 1); }

  KernelCall call(bool overwritable = true) const {
    const AttentionCase& c = all.c;
    KernelCall result("ai.kvopt::RingKvSdpa");
    result.in(all.query).in(all.keyNew).in(all.valueNew);
    result.in(pastKey.clone(), overwritable).in(pastValue.clone(), overwritable);
    result.in(all.pastLength).results(3);
    c.mask == MaskForm::none ? result.absent() : result.in(all.mask);
    c.sinks ? result.in(all.sinks) : result.absent();
    all.attributes(result);
    result.attr("mask_boolean", c.mask == MaskForm::boolean ? 1 : 0);
    result.attr("key_axis", c.keyTransposed ? 3 : 2);
    return result;
  }

  /// [B,H,S,Dv] by definition: over the kept rows and the new ones of the cache that holds all.
  std::vector<double> expected() const {
    const AttentionCase& c = all.c;
    const std::vector<int64_t> totals(static_cast<size_t>(c.batches), kept() + c.rows);
    simd::AttentionView view = all.view(totals);
    const int64_t first = past() - kept();
    const auto bytes = static_cast<int64_t>(*ir::byteWidth(c.element));
    auto after = [&](const void* data, int64_t elements) {
      return static_cast<const std::byte*>(data) + elements * bytes;
    };
    view.totalLength = kept() + c.rows;
    view.key = after(view.key, first * (c.keyTransposed ? 1 : c.width));
    view.value = after(view.value, first * c.valueWidth);
    if (c.mask != MaskForm::none)
      view.mask = static_cast<const std::byte*>(view.mask) +
                  first * view.maskStrides.column *
                      static_cast<int64_t>(*ir::byteWidth(all.mask.element()));
    return all.outputOf(view);
  }

private:
  static AttentionCase holdingAll(AttentionCase c) {
    c.capacity = c.longest();
    return c;
  }

  int64_t at(int64_t plane, int64_t slot, int64_t column, int64_t count, int64_t width,
             bool transposed) const {
    return plane * count * width + (transposed ? column * count + slot : slot * width + column);
  }

  /// The last rows of the first `length` of `cache`.
  TestTensor ring(const TestTensor& cache, int64_t length, int64_t width, bool transposed) const {
    const AttentionCase& c = all.c;
    const int64_t planes = c.batches * c.kvHeads;
    TestTensor result(c.element, transposed ? runtime::Extents{c.batches, c.kvHeads, width, slots}
                                            : runtime::Extents{c.batches, c.kvHeads, slots, width});
    for (int64_t i = 0; i < result.count(); ++i)
      result.set(i, kNan);
    for (int64_t plane = 0; plane < planes; ++plane)
      for (int64_t row = std::max<int64_t>(0, length - slots); row < length; ++row)
        for (int64_t column = 0; column < width; ++column)
          result.set(at(plane, row % slots, column, slots, width, transposed),
                     cache.get(at(plane, row, column, c.capacity, width, transposed)));
    return result;
  }

  void keep(TestTensor& present, const TestTensor& before, int64_t length, int64_t width,
            bool transposed) const {
    const AttentionCase& c = all.c;
    for (int64_t slot = 0; slot < slots; ++slot) {
      const int64_t last = length + c.rows - 1;
      const int64_t age = ((last - slot) % slots + slots) % slots;
      if (last - age >= length)
        continue;
      for (int64_t plane = 0; plane < c.batches * c.kvHeads; ++plane)
        for (int64_t column = 0; column < width; ++column) {
          const int64_t index = at(plane, slot, column, slots, width, transposed);
          present.set(index, before.get(index));
        }
    }
  }
};

} // namespace kvopt
