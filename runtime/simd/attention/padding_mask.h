// Masks of ONNX Runtime's attention operators, combined to one additive mask.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace kvopt::simd {

/// Meaning of an integer mask for B batch rows, S query rows and T keys, which its shape
/// determines.
enum class PaddingForm : uint8_t {
  none,    ///< no mask: every key is visible
  lengths, ///< [B], numbers of visible keys; or [3B+2], which begins with them
  ranges,  ///< [2B], the ends of the visible keys, followed by their starts
  keys,    ///< [B,T], positive for visible keys
  pairs,   ///< [B,S,T], positive for visible pairs of row and key
};

/// The form of a mask of this shape; nullopt if it has none. The other numbers of [3B+2] are the
/// offsets of rows and keys in a packed batch, which do not matter here. `hasRanges`: the operator
/// takes ranges.
std::optional<PaddingForm> paddingFormOf(std::span<const int64_t> shape, int64_t batches,
                                         int64_t rows, int64_t keys, bool hasRanges);

/// An additive mask [batches,heads,rows,keys]. Its numbers are finite if `hidden` and the bias are,
/// so that a row that sees nothing averages the keys with the largest sum.
struct PaddingMask {
  PaddingForm form = PaddingForm::none;
  const int64_t* visible = nullptr; ///< the mask, contiguous; unused for PaddingForm::none
  int64_t batches = 1;              ///< B, or 1 if all batch rows have the same mask
  int64_t heads = 1;                ///< H, or 1 if all heads have the same mask
  int64_t rows = 0;
  int64_t keys = 0;
  int64_t pastRows = 0; ///< number of keys before the new ones
  /// Hides keys after pastRows + i from row i; the last row sees all keys.
  bool causal = false;
  float hidden = 0.0f;         ///< number that is added for a key that `visible` hides
  const float* bias = nullptr; ///< numbers that are added to the scores; null without a bias
  int64_t biasStrides[4] = {}; ///< distances of the bias along the mask's axes; 0 repeats

  /// Writes the mask: bias, plus `hidden` for keys that `visible` hides, plus the lowest float for
  /// keys that `causal` hides.
  void write(float* out) const;

private:
  bool isVisible(int64_t batch, int64_t row, int64_t key) const;
};

} // namespace kvopt::simd
