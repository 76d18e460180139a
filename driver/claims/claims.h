// Claims: statements of a manifest about a model beyond the names and types of inputs and outputs.
// They are checked against the graph, because anyone can edit a manifest.
#pragma once

#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"

namespace kvopt::driver {

/// An opened model with inferred types, and the manifest that drives it.
struct ClaimedModel {
  const ir::Model& model;
  const ir::Manifest& manifest;
};

/// Result of a check of claims.
struct CheckedClaims {
  /// One sentence for each claim that is not proved.
  std::vector<std::string> unproved;
  /// The manifest without unproved limits on steps. A comparison that uses it also runs the steps
  /// that the limits would exclude.
  ir::Manifest manifest;
  /// Whether `manifest` differs from the one that was checked.
  bool isWidened = false;
};

/// Checks each claim of the manifest in the metadata of `claimed`; a model without a manifest has
/// no claims. `original` is the model of the comparison; its graph proves claims that the rewritten
/// form of the computation no longer shows. If the graph contradicts a claim, fails with an
/// invalid-input error that names the file and the value.
llvm::Expected<CheckedClaims> checkClaims(const ClaimedModel& claimed, const ClaimedModel& original,
                                          const Toolkit& toolkit);

/// The claims on which a command relies.
enum class ClaimScope {
  All,
  Carried, ///< those that a rewrite for another target keeps: neither rotations nor readers
};

/// Checks the claims of a single model, without a comparison; fails for an unproved claim, too.
/// Rotations and readers that the graph does not show are accepted, because their proof may require
/// another form of the model. proveRotations checks the rotations that are used.
llvm::Error proveClaims(const ClaimedModel& claimed, ClaimScope scope, const Toolkit& toolkit);

/// Proves that cached rows have the rotations of the manifest, so that rows can be moved to other
/// positions. Fails if the graph contradicts the manifest or does not show its rotations. Succeeds
/// for a manifest without rotations, and for one that does not come from the model's metadata.
llvm::Error proveRotations(const ClaimedModel& claimed, const Toolkit& toolkit);

} // namespace kvopt::driver
