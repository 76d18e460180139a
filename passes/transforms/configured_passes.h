// Passes with options, made from typed options. Pipeline texts name the same passes, for `kvopt
// opt`.
#pragma once

#include "ir/element_type.h"
#include "passes/pass.h"
#include "passes/targets/target.h"

namespace kvopt::transforms {

/// What `lower` writes.
struct LowerRequest {
  const targets::Target* target = nullptr;
  targets::LowerOptions options;
  /// Whether a site that the target refuses refuses the model.
  bool requiresAll = true;
};
std::unique_ptr<passes::Pass> makeLower(LowerRequest request);

/// Which extents `free-extents` gives symbols to. Rows of caches grow by those of the sequence:
/// `past` needs `sequence`.
struct FreedAxes {
  bool batch = false;
  bool sequence = false;
  bool past = false;
};
std::unique_ptr<passes::Pass> makeFreeExtents(FreedAxes axes);

/// What `prove-masks` may assume.
struct MaskAssumptions {
  /// What is computed for padding that sees no token may change.
  bool hiddenRowsUndefined = false;
  /// No batch row is ever padded.
  bool neverPadded = false;
};
std::unique_ptr<passes::Pass> makeProveMasks(MaskAssumptions assumptions);

/// `specialise-branch` for a bool input with the value `value`.
std::unique_ptr<passes::Pass> makeBranch(std::string input, bool value);
/// `specialise-branch` that takes the branch with a past for all steps.
std::unique_ptr<passes::Pass> makeBranchWithPast();

/// The part of a model with caches that `add-caches` leaves.
enum class CachedPart {
  Decoder,   ///< The decoder with its caches.
  FirstStep, ///< What is computed once for an encoded sequence.
};
std::unique_ptr<passes::Pass> makeAddCaches(CachedPart part);

/// `narrow-caches` that rounds rows to Float16 or BFloat16.
std::unique_ptr<passes::Pass> makeNarrowCaches(ir::ElementType type);

} // namespace kvopt::transforms
