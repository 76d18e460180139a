// A case of attention over a ring: that of a cache which holds all rows, of which the last are in
// the ring.
#pragma once

#include "tests/runtime/kernels/attention_case.h"

namespace kvopt {

/// Where rows of a cache that holds all of them lie in a ring.
struct RingLayout {
  int64_t planes; ///< batch rows times heads
  int64_t all;    ///< rows of the cache
  int64_t slots;
  int64_t past;
  int64_t rows; ///< new ones

  RingLayout(const AttentionCase& c, int64_t slotCount)
      : planes(c.batches * c.kvHeads), all(c.capacity), slots(slotCount), past(c.past[0]),
        rows(c.rows) {}

  int64_t kept() const { return std::min(past, slots - 1); }

  /// The last rows of the first `past` of `cache`, with `empty` where no row is.
  TestTensor before(const TestTensor& cache, bool transposed, double empty) const {
    TestTensor result(cache.element(), extents(cache, transposed));
    for (int64_t i = 0; i < result.count(); ++i)
      result.set(i, empty);
    write(result, cache, transposed, std::max<int64_t>(0, past - slots), past);
    return result;
  }

  /// `ring` after the new rows of `cache` took their slots.
  TestTensor after(const TestTensor& ring, const TestTensor& cache, bool transposed) const {
    TestTensor result = ring.clone();
    write(result, cache, transposed, std::max(past, past + rows - slots), past + rows);
    return result;
  }

private:
  runtime::Extents extents(const TestTensor& cache, bool transposed) const {
    runtime::Extents shape = cache.shape();
    shape[transposed ? 3 : 2] = slots;
    return shape;
  }

  void write(TestTensor& ring, const TestTensor& cache, bool transposed, int64_t first,
             int64_t end) const {
    const int64_t width = cache.shape()[transposed ? 2 : 3];
    auto at = [&](int64_t plane, int64_t row, int64_t column, int64_t count) {
      return plane * count * width + (transposed ? column * count + row : row * width + column);
    };
    for (int64_t plane = 0; plane < planes; ++plane)
      for (int64_t row = first; row < end; ++row)
        for (int64_t column = 0; column < width; ++column)
          ring.set(at(plane, row % slots, column, slots), cache.get(at(plane, row, column, all)));
  }
};

/// A small case of a single past length.
inline AttentionCase ringCase(int64_t rows, int64_t past) {
  AttentionCase c;
  c.batches = 2;
  c.kvHeads = 2;
  c.group = 2;
  c.rows = rows;
  c.past = {past};
  c.width = 8;
  c.valueWidth = 5;
  return c;
}

/// The case with a cache that holds all rows and no more.
inline AttentionCase holdingAll(AttentionCase c) {
  c.capacity = c.longest();
  return c;
}

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
    const RingLayout layout(all.c, slots);
    pastKey = layout.before(all.presentKey, all.c.keyTransposed, kNan);
    pastValue = layout.before(all.presentValue, false, kNan);
    presentKey = layout.after(pastKey, all.presentKey, all.c.keyTransposed);
    presentValue = layout.after(pastValue, all.presentValue, false);
  }

  int64_t past() const { return all.c.past[0]; }
  int64_t kept() const { return RingLayout(all.c, slots).kept(); }

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
};

} // namespace kvopt
