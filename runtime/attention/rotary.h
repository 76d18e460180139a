// Rotary position embedding of rows, shared by all operators that rotate.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

/// Tables of cosines and sines, [rows, half] each: entry [p, i] is for pair i at position p.
struct RotaryTable {
  const float* cosine = nullptr;
  const float* sine = nullptr;
  int64_t rows = 0;
  int64_t half = 0; ///< number of rotated pairs
  bool interleaved = false;
};

/// Two operands [..., half] of equal shapes as a table of all their rows. An error of the node if
/// the shapes differ, or if 2 * half exceeds the width of a head.
llvm::Expected<RotaryTable> rotaryTable(KernelContext& context, unsigned cosine, unsigned sine,
                                        int64_t width, bool interleaved);

/// An error of the node if a position is outside of the table.
llvm::Error checkPositions(const KernelContext& context, const RotaryTable& table,
                           llvm::ArrayRef<int64_t> positions);

/// Copies `from` to `to`, both [B,H,S,D] of the same floating-point type with contiguous rows, and
/// rotates the first 2 * half elements of each row by the table's row positions[b * S + s]:
///
///   y[first]  = cos * x[first] - sin * x[second]
///   y[second] = sin * x[first] + cos * x[second]
///
/// where pair i is (i, i + half), or (2i, 2i + 1) if interleaved. Computed in f32, rounded once.
llvm::Error rotateHeads(KernelContext& context, const TensorView& from, const TensorView& to,
                        const RotaryTable& table, llvm::ArrayRef<int64_t> positions);

} // namespace kvopt::runtime
