// Passes made from typed options. Pipeline texts create the same passes, for `kvopt opt`.
#pragma once

#include "ir/element_type.h"
#include "passes/pass.h"
#include "passes/targets/target.h"

namespace kvopt::transforms {

/// Options of `lower`.
struct LowerRequest {
  const targets::Target* target = nullptr;
  targets::LowerOptions options;
  /// Whether one refused site refuses the whole model.
  bool requiresAll = true;
};
std::unique_ptr<passes::Pass> makeLower(LowerRequest request);

/// Extents that `free-extents` replaces with symbols. Caches grow by the rows of the sequence:
/// `past` requires `sequence`.
struct FreedAxes {
  bool batch = false;
  bool sequence = false;
  bool past = false;
};
std::unique_ptr<passes::Pass> makeFreeExtents(FreedAxes axes);

/// Assumptions that `prove-masks` may make.
struct MaskAssumptions {
  /// Results for padding that sees no token may change.
  bool hiddenRowsUndefined = false;
  /// No batch row is ever padded.
  bool neverPadded = false;
};
std::unique_ptr<passes::Pass> makeProveMasks(MaskAssumptions assumptions);

/// `specialise-branch` for a bool input with the value `value`.
std::unique_ptr<passes::Pass> makeBranch(std::string input, bool value);
/// `specialise-branch` that takes the branch with a past in every step.
std::unique_ptr<passes::Pass> makeBranchWithPast();

/// Part of a model with caches that `add-caches` keeps.
enum class CachedPart {
  Decoder,   ///< The decoder with its caches.
  FirstStep, ///< The values that are computed once per encoded sequence.
};
std::unique_ptr<passes::Pass> makeAddCaches(CachedPart part);

/// `narrow-caches` that rounds rows to Float16 or BFloat16.
std::unique_ptr<passes::Pass> makeNarrowCaches(ir::ElementType type);

} // namespace kvopt::transforms
