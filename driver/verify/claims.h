// Claims: what a manifest says of a model beyond the names and types of its inputs and outputs,
// checked against the graph. Anyone can edit a manifest.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"

namespace kvopt::driver {

/// A model that was opened, with inferred types, and the manifest that drives it.
struct ClaimedModel {
  const ir::Model& model;
  const ir::Manifest& manifest;
};

/// What a check of claims leaves.
struct CheckedClaims {
  /// One sentence for each claim that is not proved.
  std::vector<std::string> unproved;
  /// The manifest without the limits on steps that are not proved: with it, a comparison runs what
  /// they would exclude.
  ir::Manifest manifest;
  /// Whether `manifest` differs from the manifest that was checked.
  bool isWidened = false;
};

/// Checks each claim of the manifest in the metadata of `claimed`; a model without one claims
/// nothing. `original` is the model that it is compared with, whose graph proves what the other
/// form of the same computation no longer shows. Fails with an invalid-input error that names the
/// file and the value where the graph contradicts a claim.
llvm::Expected<CheckedClaims> checkClaims(const ClaimedModel& claimed, const ClaimedModel& original,
                                          const Toolkit& toolkit);

/// Which claims a command relies on.
enum class ClaimScope {
  All,
  Carried, ///< those that a rewrite for another target takes over: neither rotations nor readers
};

/// The same for a model alone, where nothing is compared: fails also for a claim that is not
/// proved. Rotations and readers that the graph does not show are accepted here: they may need
/// another form of the model, and proveRotations checks what is used of them.
llvm::Error proveClaims(const ClaimedModel& claimed, ClaimScope scope, const Toolkit& toolkit);

/// Proves that cached rows hold the rotations that the manifest says, so that they can be moved to
/// other positions. Fails where the graph contradicts the manifest or does not show its rotations.
/// Succeeds for a manifest that says nothing of rotations, and for one that does not come from the
/// model's metadata.
llvm::Error proveRotations(const ClaimedModel& claimed, const Toolkit& toolkit);

} // namespace kvopt::driver
