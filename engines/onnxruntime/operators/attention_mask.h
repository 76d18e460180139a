// Masks of attention: any shape that broadcasts to [B,H,S,T] from the right.
#pragma once

#include "engines/onnxruntime/call.h"

namespace kvopt::onnxruntime {

/// A contiguous mask, boolean or additive, seen as four axes; missing ones have extent 1.
class AttentionMask {
public:
  /// Fails for ranks above 4 and element types other than bool and floating-point ones.
  AttentionMask(const Call& call, const Tensor& mask);

  int64_t columns() const { return extents[3]; }
  /// A mask that hides nothing from `columns` columns.
  static AttentionMask open(Call& call, int64_t columns);
  /// Keeps the first `count` columns. Fails if there are fewer.
  void keepFirst(const Call& call, int64_t count);
  /// Hides, in a copy with `rows` rows, the columns after first + i from row i.
  void hideAfter(Call& call, int64_t rows, int64_t first);
  /// Keeps the last `count` columns; a single column stays. Fails if there are fewer.
  void keepLast(const Call& call, int64_t count);
  /// Moves the first `shift` columns to the end, in a copy. Does nothing for a single column.
  void rotate(Call& call, int64_t shift);
  /// Makes the mask that of the view. Fails unless its extents are 1 or those of [B,H,S,T].
  void apply(const Call& call, simd::AttentionView& view) const;

private:
  ElementType type;
  const std::byte* data;
  int64_t extents[4] = {1, 1, 1, 1};
  int64_t rowStride = 0; ///< distance of rows in elements
};

} // namespace kvopt::onnxruntime
