// A case of attention over a cache: random operands, the present that must result, and the output
// by definition, in double.
#pragma once

#include "runtime/simd/attention/attention_reference.h"
#include "tests/runtime/kernels/kernel_harness.h"

#include <algorithm>
#include <limits>

namespace kvopt {

enum class MaskForm { none, additive, boolean };

struct AttentionCase {
  int64_t batches = 1, kvHeads = 1, group = 1, rows = 1, width = 8, valueWidth = 8, capacity = 8;
  std::vector<int64_t> past = {0}; ///< one number, or one per batch row
  ir::ElementType element = ir::ElementType::Float;
  bool keyTransposed = false;
  float scale = 0.5f, softcap = 0;
  bool causal = false, sinks = false;
  int64_t window = 0;
  MaskForm mask = MaskForm::none;
  bool maskBatch = true, maskHead = true, maskRow = true, maskColumn = true; ///< false: broadcast
  bool hideEverything = false;                                               ///< in query row 0

  int64_t heads() const { return kvHeads * group; }
  int64_t pastOf(int64_t batch) const {
    return past.size() == 1 ? past[0] : past[static_cast<size_t>(batch)];
  }
  int64_t longest() const { return rows + *std::max_element(past.begin(), past.end()); }
};

/// Codes of int8, from -128 to 127, in a fixed order.
inline TestTensor randomCodes(const runtime::Extents& shape, unsigned seed) {
  TestTensor codes(ir::ElementType::Int8, shape);
  for (int64_t i = 0; i < codes.count(); ++i)
    codes.set(i, double(int((i * 97 + (i / 7) * 31 + seed * 53) % 256) - 128));
  return codes;
}

/// The same numbers as float.
inline TestTensor asNumbers(const TestTensor& codes) {
  return TestTensor(ir::ElementType::Float, codes.shape(), codes.values());
}

/// The operands of ai.kvopt::InPlaceKvSdpa for a case. Cache rows that are not valid are NaN.
struct AttentionProblem {
  AttentionCase c;
  TestTensor query, keyNew, valueNew, pastKey, pastValue, pastLength, mask, sinks;
  /// By definition.
  TestTensor presentKey, presentValue;

  explicit AttentionProblem(const AttentionCase& given) : c(given) {
    query = randomTensor(c.element, {c.batches, c.heads(), c.rows, c.width}, 1);
    keyNew = randomTensor(c.element, {c.batches, c.kvHeads, c.rows, c.width}, 2);
    valueNew = randomTensor(c.element, {c.batches, c.kvHeads, c.rows, c.valueWidth}, 3);
    pastKey = poisonedCache(c.width, c.keyTransposed, 4);
    pastValue = poisonedCache(c.valueWidth, false, 5);
    std::vector<double> lengths(c.past.begin(), c.past.end());
    pastLength = int64s(lengths);
    if (c.mask != MaskForm::none)
      makeMask();
    if (c.sinks)
      sinks = randomTensor(ir::ElementType::Float, {c.heads()}, 6);
    presentKey = appended(pastKey, keyNew, c.keyTransposed);
    presentValue = appended(pastValue, valueNew, false);
  }

  /// Where an element of a cache lies.
  int64_t at(int64_t batch, int64_t head, int64_t row, int64_t column, int64_t width,
             bool transposed) const {
    const int64_t plane = (batch * c.kvHeads + head) * c.capacity * width;
    return plane + (transposed ? column * c.capacity + row : row * width + column);
  }

  KernelCall call(bool overwritable = true) const {
    KernelCall result("ai.kvopt::InPlaceKvSdpa");
    result.in(query).in(keyNew).in(valueNew).in(pastKey, overwritable).in(pastValue, overwritable);
    result.in(pastLength).results(3);
    c.mask == MaskForm::none ? result.absent() : result.in(mask);
    c.sinks ? result.in(sinks) : result.absent();
    attributes(result);
    result.attr("mask_boolean", c.mask == MaskForm::boolean ? 1 : 0);
    result.attr("key_axis", c.keyTransposed ? 3 : 2);
    return result;
  }
  void attributes(KernelCall& to) const {
    to.attr("scale", double{c.scale}).attr("softcap", double{c.softcap});
    to.attr("causal", c.causal ? 1 : 0).attr("window", static_cast<int>(c.window));
  }

  /// [B,H,S,Dv] by definition, over the present.
  std::vector<double> expected() const {
    const std::vector<int64_t> totals = totalLengths();
    return outputOf(view(totals));
  }
  std::vector<double> outputOf(const simd::AttentionView& attention) const {
    std::vector<double> result(static_cast<size_t>(c.batches * c.heads() * c.rows * c.valueWidth));
    attentionReference(attention, result);
    return result;
  }
  std::vector<int64_t> totalLengths() const {
    std::vector<int64_t> totals;
    for (int64_t batch = 0; batch < c.batches; ++batch)
      totals.push_back(c.pastOf(batch) + c.rows);
    return totals;
  }
  /// Attention over the present, which holds `totals` rows.
  simd::AttentionView view(const std::vector<int64_t>& totals) const {
    simd::AttentionView view;
    view.batches = c.batches;
    view.queryHeads = c.heads();
    view.kvHeads = c.kvHeads;
    view.queryRows = c.rows;
    view.keyWidth = c.width;
    view.valueWidth = c.valueWidth;
    view.totalLength = c.longest();
    view.totalLengths = totals.data();
    view.queryStorage = view.cacheStorage =
        c.element == ir::ElementType::Float     ? simd::FloatStorage::f32
        : c.element == ir::ElementType::Float16 ? simd::FloatStorage::f16
                                                : simd::FloatStorage::bf16;
    view.query = query.data();
    view.key = presentKey.data();
    view.value = presentValue.data();
    view.queryStrides = {c.heads() * c.rows * c.width, c.rows * c.width, c.width};
    const int64_t keyPlane = c.capacity * c.width;
    view.keyStrides = {c.kvHeads * keyPlane, keyPlane, c.keyTransposed ? c.capacity : c.width};
    const int64_t valuePlane = c.capacity * c.valueWidth;
    view.valueStrides = {c.kvHeads * valuePlane, valuePlane, c.valueWidth};
    view.keyTransposed = c.keyTransposed;
    view.scale = c.scale;
    view.causal = c.causal;
    view.window = c.window;
    view.softcap = c.softcap;
    if (c.mask != MaskForm::none) {
      view.maskKind =
          c.mask == MaskForm::boolean ? simd::MaskKind::boolean : simd::MaskKind::additive;
      view.mask = mask.data();
      const runtime::Extents strides = runtime::contiguousStrides(mask.shape());
      auto stride = [&](unsigned axis) { return mask.shape()[axis] == 1 ? 0 : strides[axis]; };
      view.maskStrides = {stride(0), stride(1), stride(2), stride(3)};
    }
    view.sinks = c.sinks ? reinterpret_cast<const float*>(sinks.data()) : nullptr;
    return view;
  }

  /// An upper bound for the error of any output element. All operands are at most 1. With
  /// u = 2^-24 a score (at most s = |scale| D, softcap and mask aside) is wrong by at most
  ///   e = ((D + 8) s + 2 (s + 4) + 16 softcap) u
  /// its weight, relatively, by w = 2 e + 108 u, the sum of T weighted values by w + T u on both
  /// sides of the division; then the result is rounded to the element type.
  double bound() const {
    const double u = 0x1p-24;
    const double s = std::abs(double{c.scale}) * static_cast<double>(c.width);
    const double e =
        ((static_cast<double>(c.width) + 8) * s + 2 * (s + 4) + 16 * double{c.softcap}) * u;
    const double rounding = c.element == ir::ElementType::Float     ? u
                            : c.element == ir::ElementType::Float16 ? 0x1p-11
                                                                    : 0x1p-8;
    return 2 * (2 * e + 108 * u + static_cast<double>(c.longest()) * u) + rounding;
  }

private:
  TestTensor poisonedCache(int64_t width, bool transposed, unsigned seed) const {
    runtime::Extents shape{c.batches, c.kvHeads, c.capacity, width};
    if (transposed)
      std::swap(shape[2], shape[3]);
    TestTensor cache = randomTensor(c.element, shape, seed);
    for (int64_t batch = 0; batch < c.batches; ++batch)
      for (int64_t head = 0; head < c.kvHeads; ++head)
        for (int64_t row = c.pastOf(batch); row < c.capacity; ++row)
          for (int64_t column = 0; column < width; ++column)
            cache.set(at(batch, head, row, column, width, transposed),
                      std::numeric_limits<double>::quiet_NaN());
    return cache;
  }

  TestTensor appended(const TestTensor& past, const TestTensor& fresh, bool transposed) const {
    TestTensor result = past.clone();
    const int64_t width = fresh.shape()[3];
    int64_t next = 0;
    for (int64_t batch = 0; batch < c.batches; ++batch)
      for (int64_t head = 0; head < c.kvHeads; ++head)
        for (int64_t row = 0; row < c.rows; ++row)
          for (int64_t column = 0; column < width; ++column) {
            const int64_t to = c.pastOf(batch) + row;
            if (to < c.capacity)
              result.set(at(batch, head, to, column, width, transposed), fresh.get(next));
            ++next;
          }
    return result;
  }

  void makeMask() {
    const runtime::Extents shape{c.maskBatch ? c.batches : 1, c.maskHead ? c.heads() : 1,
                                 c.maskRow ? c.rows : 1, c.maskColumn ? c.longest() : 1};
    const bool boolean = c.mask == MaskForm::boolean;
    mask = randomTensor(boolean ? ir::ElementType::Bool : ir::ElementType::Float, shape, 7, 1.0);
    std::mt19937 generator(8);
    for (int64_t i = 0; i < mask.count(); ++i) {
      const bool firstRow = i / shape[3] % shape[2] == 0;
      const bool hidden = generator() % 10 < 3 || (c.hideEverything && firstRow);
      if (boolean)
        mask.set(i, hidden ? 0 : 1);
      else if (hidden)
        mask.set(i, -std::numeric_limits<double>::infinity());
    }
  }
};

} // namespace kvopt
