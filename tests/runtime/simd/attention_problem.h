// One attention problem with poisoned surroundings, its definition in double and its error bound.
#pragma once

#include "runtime/simd/attention/attention_kernel.h"
#include "runtime/simd/attention/attention_reference.h"
#include "runtime/simd/attention/simd_target.h"
#include "tests/runtime/simd/attention_bound.h"
#include "tests/runtime/simd/poisoned_array.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

namespace kvopt {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLargest = std::numeric_limits<float>::max();

enum class Mask { none, additive, additiveF16, additiveBf16, boolean };

struct Case {
  int64_t batches = 1, kvHeads = 1, group = 1, rows = 1, keys = 1, width = 8, valueWidth = 8;
  std::vector<int64_t> totals = {}; ///< ragged; `keys` is then their maximum
  simd::FloatStorage queryStorage = simd::FloatStorage::f32;
  simd::FloatStorage cacheStorage = simd::FloatStorage::f32;
  simd::FloatStorage outputStorage = simd::FloatStorage::f32;
  bool quantized = false; ///< `cacheStorage` means nothing then
  bool transposed = false;
  /// Values are columns of the keys from here on.
  std::optional<int64_t> valueOffset = {};
  float scale = 0.5f, softcap = 0, magnitude = 1;
  bool causal = false, sinks = false;
  int64_t window = 0;
  Mask mask = Mask::none;
  bool maskBatch = true, maskHead = true, maskRow = true, maskColumn = true; ///< false: broadcast
  float hidden = 0.3f; ///< the share of mask elements that hide their key
  // The layout, which must not change the result.
  int64_t padding = 3, spareCapacity = 2, misalignment = 1;
};

/// Numbers of a standard normal distribution, to choose from: drawing each anew takes longer than
/// what is tested with them.
inline const std::vector<float>& normalNumbers() {
  static const std::vector<float> numbers = [] {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> drawn(1 << 14);
    std::generate(drawn.begin(), drawn.end(), [&] { return normal(random); });
    return drawn;
  }();
  return numbers;
}

/// The arrays and the view of a Case. The values are drawn in logical order: equal for all layouts.
class Problem {
public:
  explicit Problem(const Case& c)
      : c_(c), heads_(c.kvHeads * c.group), capacity_(c.keys + c.spareCapacity),
        query_(c.queryStorage,
               c.misalignment + c.batches * heads_ * c.rows * (c.width + c.padding)),
        key_(c.cacheStorage, c.quantized, c.misalignment + c.batches * c.kvHeads * keyPlane(),
             scaleCount()),
        value_(c.cacheStorage, c.quantized,
               c.misalignment + c.batches * c.kvHeads * capacity_ * (c.valueWidth + c.padding),
               scaleCount()),
        output_(c.outputStorage,
                c.misalignment + c.batches * heads_ * c.rows * (c.valueWidth + c.padding)),
        mask_(maskStorage(), c.batches * heads_ * c.rows * c.keys), random_(7) {
    setView();
    fill();
  }

  const simd::AttentionView& view() const { return view_; }

  /// Every element of O, in logical order.
  std::vector<float> output() const {
    std::vector<float> result;
    for (int64_t b = 0; b < c_.batches; ++b)
      for (int64_t h = 0; h < heads_; ++h)
        for (int64_t i = 0; i < c_.rows; ++i)
          for (int64_t d = 0; d < c_.valueWidth; ++d)
            result.push_back(output_.get(c_.misalignment + b * view_.outputStrides.batch +
                                         h * view_.outputStrides.head +
                                         i * view_.outputStrides.row + d));
    return result;
  }

  /// The memory of O between the rows is as poisoned as it was.
  bool paddingIsUntouched() const {
    for (int64_t at = 0; at < c_.misalignment; ++at)
      if (!std::isnan(output_.get(at)))
        return false;
    const int64_t stride = c_.valueWidth + c_.padding;
    for (int64_t row = 0; row < c_.batches * heads_ * c_.rows; ++row)
      for (int64_t d = c_.valueWidth; d < stride; ++d)
        if (!std::isnan(output_.get(c_.misalignment + row * stride + d)))
          return false;
    return true;
  }

  /// An upper bound for |O - exact| of one row, from the dtype, the lengths and the magnitudes of
  /// what is added (`attentionBound`). A score is wrong by at most
  ///   |scale| gamma(D + 3) sum_d |q k| + 16 u softcap + 2 u (|scale q k| + |s| + |mask|)
  /// and, where the kernel may write queries in digits (code_products.h), by
  ///   |scale| 1.51 u max_d |q| sum_d |k|
  double bound(int64_t b, int64_t h, int64_t i, bool mayWriteDigits = true) const {
    const double unit = 0x1p-24;
    const int64_t group = h / c_.group, total = view_.totalLengthOf(b);
    std::vector<BoundedKey> keys;
    if (c_.sinks)
      keys.push_back({double{sinks_[static_cast<size_t>(h)]}, 0, {}});
    for (int64_t j = 0; j < total; ++j) {
      const double term = maskTerm(b, h, i, j);
      const int64_t behind = i + total - c_.rows - j;
      if (std::isinf(term) || (c_.causal && behind < 0) || (c_.window != 0 && behind >= c_.window))
        continue;
      const int64_t scale = scaleIndex(b, group, j);
      double dot = 0, magnitude = 0, largest = 0, sum = 0;
      for (int64_t d = 0; d < c_.width; ++d) {
        const double query = query_.get(queryIndex(b, h, i) + d);
        const double element = key_.get(keyIndex(b, group, j, d), scale);
        dot += query * element;
        magnitude += std::abs(query * element);
        largest = std::max(largest, std::abs(query));
        sum += std::abs(element);
      }
      const double digits = mayWriteDigits && c_.quantized && simd::usesByteProducts()
                                ? 1.51 * unit * largest * sum
                                : 0;
      const double scaled = c_.scale * dot;
      const double capped = c_.softcap != 0 ? c_.softcap * std::tanh(scaled / c_.softcap) : scaled;
      BoundedKey key;
      key.score = capped + term;
      key.error =
          std::abs(c_.scale) * (roundings(static_cast<double>(c_.width) + 3) * magnitude + digits) +
          16 * unit * std::abs(c_.softcap) +
          2 * unit * (std::abs(scaled) + std::abs(capped) + std::abs(term));
      for (int64_t d = 0; d < c_.valueWidth; ++d)
        key.values.push_back(values().get(valueIndex(b, group, j) + d, scale));
      keys.push_back(std::move(key));
    }
    return attentionBound(keys, total, c_.outputStorage);
  }

  void setMask(int64_t index, float value) { mask_.set(index, value); }
  /// All elements of a key and a value.
  void setCache(int64_t b, int64_t g, int64_t j, float value) {
    if (c_.quantized)
      return setCodes(b, g, j, value, [] { return int8_t{1}; });
    for (int64_t d = 0; d < c_.width; ++d)
      key_.set(keyIndex(b, g, j, d), value);
    for (int64_t d = 0; d < ownValueWidth(); ++d)
      value_.set(valueIndex(b, g, j) + d, value);
  }

private:
  const CacheRows& values() const { return c_.valueOffset ? key_ : value_; }
  /// Elements of a value that are not those of its key.
  int64_t ownValueWidth() const { return c_.valueOffset ? 0 : c_.valueWidth; }
  int64_t keyPlane() const {
    return c_.transposed ? c_.width * capacity_ : capacity_ * (c_.width + c_.padding);
  }
  int64_t scaleCount() const {
    return c_.misalignment + c_.batches * c_.kvHeads * capacity_ * (1 + c_.padding);
  }
  int64_t scaleIndex(int64_t b, int64_t g, int64_t j) const {
    return c_.misalignment + ((b * c_.kvHeads + g) * capacity_ + j) * (1 + c_.padding);
  }
  template <class Code> void setCodes(int64_t b, int64_t g, int64_t j, float scale, Code code) {
    key_.setScale(scaleIndex(b, g, j), scale);
    value_.setScale(scaleIndex(b, g, j), scale);
    for (int64_t d = 0; d < c_.width; ++d)
      key_.setCode(keyIndex(b, g, j, d), code());
    for (int64_t d = 0; d < ownValueWidth(); ++d)
      value_.setCode(valueIndex(b, g, j) + d, code());
  }
  simd::FloatStorage maskStorage() const {
    return c_.mask == Mask::additiveF16    ? simd::FloatStorage::f16
           : c_.mask == Mask::additiveBf16 ? simd::FloatStorage::bf16
                                           : simd::FloatStorage::f32;
  }
  int64_t queryIndex(int64_t b, int64_t h, int64_t i) const {
    return c_.misalignment + b * view_.queryStrides.batch + h * view_.queryStrides.head +
           i * view_.queryStrides.row;
  }
  int64_t keyIndex(int64_t b, int64_t g, int64_t j, int64_t d) const {
    return c_.misalignment + b * view_.keyStrides.batch + g * view_.keyStrides.head +
           (c_.transposed ? d * view_.keyStrides.row + j : j * view_.keyStrides.row + d);
  }
  int64_t valueIndex(int64_t b, int64_t g, int64_t j) const {
    return c_.misalignment + c_.valueOffset.value_or(0) + b * view_.valueStrides.batch +
           g * view_.valueStrides.head + j * view_.valueStrides.row;
  }
  double maskTerm(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (c_.mask == Mask::none)
      return 0;
    const simd::MaskStrides& s = view_.maskStrides;
    const int64_t at = b * s.batch + h * s.head + i * s.row + j * s.column;
    if (c_.mask == Mask::boolean)
      return boolean_.at(static_cast<size_t>(at)) ? 0 : -INFINITY;
    return mask_.get(at);
  }

  void setView() {
    const auto rowStrides = [](int64_t heads, int64_t rows, int64_t stride) {
      return simd::RowStrides{heads * rows * stride, rows * stride, stride};
    };
    view_.batches = c_.batches;
    view_.queryHeads = heads_;
    view_.kvHeads = c_.kvHeads;
    view_.queryRows = c_.rows;
    view_.keyWidth = c_.width;
    view_.valueWidth = c_.valueWidth;
    view_.totalLength = c_.keys;
    view_.totalLengths = c_.totals.empty() ? nullptr : c_.totals.data();
    view_.queryStorage = c_.queryStorage;
    view_.cacheStorage = c_.cacheStorage;
    view_.outputStorage = c_.outputStorage;
    view_.query = query_.at(c_.misalignment);
    view_.key = key_.at(c_.misalignment);
    view_.value = value_.at(c_.misalignment);
    view_.output = output_.at(c_.misalignment);
    view_.queryStrides = rowStrides(heads_, c_.rows, c_.width + c_.padding);
    view_.keyStrides = {c_.kvHeads * keyPlane(), keyPlane(),
                        c_.transposed ? capacity_ : c_.width + c_.padding};
    view_.valueStrides = rowStrides(c_.kvHeads, capacity_, c_.valueWidth + c_.padding);
    if (c_.valueOffset) {
      assert(!c_.transposed && *c_.valueOffset + c_.valueWidth <= c_.width);
      view_.value = key_.at(c_.misalignment + *c_.valueOffset);
      view_.valueStrides = view_.keyStrides;
    }
    view_.outputStrides = rowStrides(heads_, c_.rows, c_.valueWidth + c_.padding);
    view_.keyTransposed = c_.transposed;
    if (c_.quantized) {
      view_.keyScales = key_.scalesAt(c_.misalignment);
      view_.valueScales = values().scalesAt(c_.misalignment);
      view_.keyScaleStrides = rowStrides(c_.kvHeads, capacity_, 1 + c_.padding);
      view_.valueScaleStrides = view_.keyScaleStrides;
    }
    view_.scale = c_.scale;
    view_.softcap = c_.softcap;
    view_.causal = c_.causal;
    view_.window = c_.window;
    sinks_.assign(static_cast<size_t>(heads_), 0.25f);
    if (c_.sinks)
      view_.sinks = sinks_.data();
    if (c_.mask == Mask::none)
      return;
    view_.maskKind = c_.mask == Mask::boolean ? simd::MaskKind::boolean : simd::MaskKind::additive;
    view_.maskStorage = maskStorage();
    boolean_.assign(static_cast<size_t>(c_.batches * heads_ * c_.rows * c_.keys), 0);
    view_.mask = c_.mask == Mask::boolean ? boolean_.data() : mask_.at(0);
    view_.maskStrides = {c_.maskBatch ? heads_ * c_.rows * c_.keys : 0,
                         c_.maskHead ? c_.rows * c_.keys : 0, c_.maskRow ? c_.keys : 0,
                         c_.maskColumn ? 1 : 0};
  }

  float draw() {
    const std::vector<float>& numbers = normalNumbers();
    return c_.magnitude * numbers[random_() % numbers.size()];
  }

  void fill() {
    for (int64_t b = 0; b < c_.batches; ++b) {
      for (int64_t g = 0; g < c_.kvHeads; ++g)
        for (int64_t j = 0; j < view_.totalLengthOf(b); ++j) {
          if (c_.quantized) {
            // As rows of this magnitude are quantized, more or less.
            setCodes(b, g, j, c_.magnitude * std::abs(draw() / c_.magnitude) / 50, [&] {
              return static_cast<int8_t>(
                  std::clamp(std::round(50 * draw() / c_.magnitude), -127.0f, 127.0f));
            });
            continue;
          }
          for (int64_t d = 0; d < c_.width; ++d)
            key_.set(keyIndex(b, g, j, d), draw());
          for (int64_t d = 0; d < ownValueWidth(); ++d)
            value_.set(valueIndex(b, g, j) + d, draw());
        }
      for (int64_t h = 0; h < heads_; ++h)
        for (int64_t i = 0; i < c_.rows; ++i)
          for (int64_t d = 0; d < c_.width; ++d)
            query_.set(queryIndex(b, h, i) + d, draw());
    }
    std::uniform_real_distribution<float> uniform(0, 1);
    for (int64_t at = 0; at < c_.batches * heads_ * c_.rows * c_.keys; ++at) {
      const bool hides = uniform(random_) < c_.hidden;
      mask_.set(at, hides ? -kInfinity : uniform(random_) - 0.5f);
      if (!boolean_.empty())
        boolean_[static_cast<size_t>(at)] = !hides;
    }
  }

  Case c_;
  int64_t heads_, capacity_;
  Array query_;
  CacheRows key_, value_;
  Array output_, mask_;
  std::vector<uint8_t> boolean_;
  std::vector<float> sinks_;
  std::mt19937 random_;
  simd::AttentionView view_;
};

/// A kernel, and whether it may multiply bytes (code_products.h).
struct TestedKernel {
  TestedKernel(const simd::AttentionKernel& tested, bool multiplies = true)
      : kernel(tested), byteProducts(multiplies) {}
  operator const simd::AttentionKernel&() const { return kernel; }

  const simd::AttentionKernel& kernel;
  bool byteProducts;
};

/// All units of `view`, one after the other, in poisoned scratch memory.
inline void compute(simd::AttentionView view, const TestedKernel& tested) {
  view.byteProducts = tested.byteProducts;
  simd::AttentionJob job(view, tested.kernel);
  std::vector<std::byte> scratch(job.scratchBytes(1).value(), std::byte{0xFF});
  job.start(scratch);
  for (int64_t unit = 0; unit < job.units(); ++unit)
    job.run(unit, 0, unit + 1);
}

inline std::vector<float> run(const Case& c, const TestedKernel& kernel) {
  Problem problem(c);
  compute(problem.view(), kernel);
  return problem.output();
}

/// Calls `body(kernel)` for every kernel that takes the problem and, of codes, once more for one
/// that must not multiply bytes.
template <class Body> void forEachKernel(const Case& c, Body body) {
  const Problem problem(c);
  for (const simd::AttentionKernel& kernel : simd::attentionKernels().all())
    if (kernel.takes(problem.view())) {
      SCOPED_TRACE(testing::Message() << "kernel " << kernel.name);
      body(TestedKernel(kernel));
      if (!c.quantized || !simd::usesByteProducts())
        continue;
      SCOPED_TRACE("without products of bytes");
      body(TestedKernel(kernel, /*multiplies=*/false));
    }
}

inline void check(const Case& c, const TestedKernel& tested) {
  const simd::AttentionKernel& kernel = tested.kernel;
  Problem problem(c);
  compute(problem.view(), tested);
  const auto result = problem.output();
  std::vector<double> exact(result.size());
  attentionReference(problem.view(), exact);
  EXPECT_TRUE(problem.paddingIsUntouched());
  size_t at = 0;
  for (int64_t b = 0; b < c.batches; ++b)
    for (int64_t h = 0; h < c.kvHeads * c.group; ++h)
      for (int64_t i = 0; i < c.rows; ++i) {
        const double bound = problem.bound(b, h, i, kernel.name == "decode" && tested.byteProducts);
        for (int64_t d = 0; d < c.valueWidth; ++d, ++at)
          ASSERT_NEAR(result[at], exact[at], bound)
              << "b=" << b << " h=" << h << " i=" << i << " d=" << d << " S=" << c.rows
              << " T=" << c.keys << " D=" << c.width << " Dv=" << c.valueWidth
              << " group=" << c.group << " transposed=" << c.transposed;
      }
}

/// Every kernel that takes the problem is within the bound.
inline void check(const Case& c) {
  forEachKernel(c, [&](const TestedKernel& kernel) { check(c, kernel); });
}

inline constexpr simd::FloatStorage kStorages[] = {simd::FloatStorage::f32, simd::FloatStorage::f16,
                                                   simd::FloatStorage::bf16};

} // namespace kvopt
