// A case of attention over quantized caches: codes, scales, the presents that must result, and the
// output by definition.
#pragma once

#include "tests/runtime/kernels/attention_case.h"

namespace kvopt {

/// The operands of ai.kvopt::InPlaceQuantizedKvSdpa for a case. Scales of rows that are not valid
/// are NaN, their codes 127.
struct QuantizedProblem {
  AttentionProblem plain; ///< query, new rows, lengths, mask, sinks
  struct Side {
    TestTensor codes, scales;               ///< of the past
    TestTensor presentCodes, presentScales; ///< by definition
  };
  Side key, value;

  explicit QuantizedProblem(const AttentionCase& c) : plain(c) {
    key = side(plain.keyNew, c.keyTransposed, 14);
    value = side(plain.valueNew, false, 15);
  }

  const AttentionCase& c() const { return plain.c; }

  KernelCall call(bool overwritable = true) const {
    KernelCall result("ai.kvopt::InPlaceQuantizedKvSdpa");
    result.in(plain.query).in(plain.keyNew).in(plain.valueNew);
    result.in(key.codes, overwritable).in(key.scales, overwritable);
    result.in(value.codes, overwritable).in(value.scales, overwritable);
    result.in(plain.pastLength).results(5);
    c().mask == MaskForm::none ? result.absent() : result.in(plain.mask);
    c().sinks ? result.in(plain.sinks) : result.absent();
    plain.attributes(result);
    result.attr("mask_boolean", c().mask == MaskForm::boolean ? 1 : 0);
    result.attr("key_axis", c().keyTransposed ? 3 : 2);
    return result;
  }

  std::vector<double> expected() const {
    const std::vector<int64_t> totals = plain.totalLengths();
    return plain.outputOf(view(totals));
  }

  /// Attention over the presents.
  simd::AttentionView view(const std::vector<int64_t>& totals) const {
    simd::AttentionView view = plain.view(totals);
    view.key = key.presentCodes.data();
    view.value = value.presentCodes.data();
    view.keyScales = reinterpret_cast<const float*>(key.presentScales.data());
    view.valueScales = reinterpret_cast<const float*>(value.presentScales.data());
    view.keyScaleStrides = view.valueScaleStrides = {c().kvHeads * c().capacity, c().capacity, 1};
    return view;
  }

  /// As AttentionProblem::bound; rows stand for numbers of at most 1.
  double bound() const { return plain.bound() + 4 * 0x1p-24; }

private:
  Side side(const TestTensor& fresh, bool transposed, unsigned seed) const {
    const int64_t width = fresh.shape()[3];
    runtime::Extents shape{c().batches, c().kvHeads, c().capacity, width};
    runtime::Extents scaleShape{c().batches, c().kvHeads, c().capacity, 1};
    if (transposed) {
      std::swap(shape[2], shape[3]);
      std::swap(scaleShape[2], scaleShape[3]);
    }
    Side made;
    made.codes = randomTensor(ir::ElementType::Int8, shape, seed, 127);
    made.scales = randomTensor(ir::ElementType::Float, scaleShape, seed + 1);
    made.presentCodes = made.codes.clone();
    made.presentScales = made.scales.clone();
    for (int64_t batch = 0; batch < c().batches; ++batch)
      for (int64_t head = 0; head < c().kvHeads; ++head)
        for (int64_t row = 0; row < c().capacity; ++row)
          setRow(made, fresh, {batch, head, row}, transposed);
    return made;
  }

  void setRow(Side& made, const TestTensor& fresh, const std::array<int64_t, 3>& place,
              bool transposed) const {
    const auto [batch, head, row] = place;
    const int64_t width = fresh.shape()[3], past = c().pastOf(batch);
    const int64_t plane = batch * c().kvHeads + head, scaleAt = plane * c().capacity + row;
    auto at = [&](int64_t column) {
      return plain.at(place[0], place[1], place[2], column, width, transposed);
    };
    const bool isValid = row < past;
    // Numbers of at most 1.
    made.scales.set(scaleAt, isValid ? std::abs(made.scales.get(scaleAt)) / 127 : double{NAN});
    made.presentScales.set(scaleAt, made.scales.get(scaleAt));
    for (int64_t column = 0; column < width && !isValid; ++column) {
      made.codes.set(at(column), 127);
      made.presentCodes.set(at(column), 127);
    }
    if (isValid || row >= past + c().rows)
      return;
    const int64_t from = (plane * c().rows + row - past) * width;
    float largest = 0;
    for (int64_t column = 0; column < width; ++column)
      largest = std::max(largest, std::abs(static_cast<float>(fresh.get(from + column))));
    const float scale = largest / 127.0f;
    made.presentScales.set(scaleAt, double{scale});
    for (int64_t column = 0; column < width; ++column)
      made.presentCodes.set(at(column),
                            double{std::nearbyint(static_cast<float>(fresh.get(from + column)) /
                                                  (scale == 0 ? 1.0f : scale))});
  }
};

} // namespace kvopt
