// Rotary position embedding of rows, as every operator that rotates does it.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

/// Tables of cosines and sines, [rows, half] each: entry [p, i] belongs to pair i at position p.
struct RotaryTable {
  const float* cosine = nullptr;
  const float* sine = nullptr;
  int64_t rows = 0;
  int64_t half = 0; ///< pairs that are rotated
  bool interleaved = false;
};

/// Two operands [..., half] of equal shapes as a table of all their rows. An error of the node when
/// they differ, or when 2 * half exceeds the width of a head.
llvm::Expected<RotaryTable> rotaryTable(KernelContext& context, unsigned cosine, unsigned sine,
                                        int64_t width, bool interleaved);

/// An error of the node when one of the positions is no row of the table.
llvm::Error checkPositions(const KernelContext& context, const RotaryTable& table,
                           llvm::ArrayRef<int64_t> positions);

/// `to` = `from`, both [B,H,S,D] of one floating-point type with contiguous rows, with the first
/// 2 * half elements of each row rotated by the table's row positions[b * S + s]:
///
///   y[first]  = cos * x[first] - sin * x[second]
///   y[second] = sin * x[first] + cos * x[second]
///
/// where pair i is (i, i + half), or (2i, 2i + 1) when interleaved. f32 arithmetic, rounded once.
llvm::Error rotateHeads(KernelContext& context, const TensorView& from, const TensorView& to,
                        const RotaryTable& table, llvm::ArrayRef<int64_t> positions);

} // namespace kvopt::runtime
