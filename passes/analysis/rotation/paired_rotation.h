// PairedRotation: the rotation of pairs of columns that primitive operators compute.
#pragma once

#include "ir/value.h"

#include <optional>

namespace kvopt::analysis {

/// Columns first, first + step, first + 2 step, … of the last axis of a value.
struct StridedColumns {
  ir::Value* value = nullptr;
  int64_t first = 0;
  int64_t step = 1;
};

/// Heads whose pairs of columns are rotated by factors that are the same for all heads:
///
///   y[i] = c x[i] - s x[j]
///   y[j] = c x[j] + s x[i]
///
/// Pair k is (k, k + pairs), or (2 k, 2 k + 1) if interleaved. Later columns stay as they are.
struct PairedRotation {
  /// x, [B,H,S,D], or [B,S,H,D] if the tokens come first.
  ir::Value* rows = nullptr;
  bool areTokensFirst = false;
  int64_t pairs = 0;
  bool interleaved = false;
  /// c and s of each pair. Their values broadcast to x, with an extent of 1 for the heads.
  StridedColumns cosines;
  StridedColumns sines;
};

/// The rotation whose result is `heads`, [B,H,S,D], perhaps after a Transpose from [B,S,H,D];
/// nullopt if operators compute something else, or nothing that is proved to be a rotation. The
/// proof computes each column as a polynomial in columns of earlier values, and does not assume
/// anything about positions.
std::optional<PairedRotation> readPairedRotation(ir::Value& heads);

} // namespace kvopt::analysis
