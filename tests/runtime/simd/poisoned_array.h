// Memory of one storage type, poisoned where nothing was set, for attention problems.
#pragma once

#include "runtime/simd/attention/attention.h"
#include "support/half.h"

#include <cmath>
#include <cstdint>
#include <vector>

namespace kvopt {

/// An array of one storage type, poisoned with NaN.
class Array {
public:
  Array(simd::FloatStorage storage, int64_t count)
      : storage_(storage),
        wide_(storage == simd::FloatStorage::f32 ? static_cast<size_t>(count) : 0, NAN),
        narrow_(storage == simd::FloatStorage::f32 ? 0 : static_cast<size_t>(count), 0x7FFF) {}

  float get(int64_t index) const {
    const auto i = static_cast<size_t>(index);
    return storage_ == simd::FloatStorage::f32   ? wide_.at(i)
           : storage_ == simd::FloatStorage::f16 ? f16ToFloat(narrow_.at(i))
                                                 : bf16ToFloat(narrow_.at(i));
  }
  void set(int64_t index, float value) {
    const auto i = static_cast<size_t>(index);
    if (storage_ == simd::FloatStorage::f32)
      wide_.at(i) = value;
    else
      narrow_.at(i) = storage_ == simd::FloatStorage::f16 ? floatToF16(value) : floatToBf16(value);
  }
  void* at(int64_t index) {
    if (storage_ == simd::FloatStorage::f32)
      return wide_.data() + index;
    return narrow_.data() + index;
  }

private:
  simd::FloatStorage storage_;
  std::vector<float> wide_;
  std::vector<uint16_t> narrow_;
};

/// Rows of K or V: numbers of one storage type or, quantized, codes with scales that are NaN where
/// nothing was set.
class CacheRows {
public:
  CacheRows(simd::FloatStorage storage, bool quantized, int64_t count, int64_t rows)
      : quantized_(quantized), numbers_(storage, quantized ? 0 : count),
        codes_(quantized ? static_cast<size_t>(count) : 0, int8_t{127}),
        scales_(quantized ? static_cast<size_t>(rows) : 0, NAN) {}

  double get(int64_t index, int64_t row) const {
    if (!quantized_)
      return double{numbers_.get(index)};
    return double{scales_.at(static_cast<size_t>(row))} *
           static_cast<double>(codes_.at(static_cast<size_t>(index)));
  }
  void set(int64_t index, float value) { numbers_.set(index, value); }
  void setCode(int64_t index, int8_t code) { codes_.at(static_cast<size_t>(index)) = code; }
  void setScale(int64_t row, float scale) { scales_.at(static_cast<size_t>(row)) = scale; }
  void* at(int64_t index) { return quantized_ ? codes_.data() + index : numbers_.at(index); }
  const float* scalesAt(int64_t row) const { return quantized_ ? scales_.data() + row : nullptr; }

private:
  bool quantized_;
  Array numbers_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
};

} // namespace kvopt
