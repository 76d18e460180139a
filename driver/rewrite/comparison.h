// Comparison of a rewritten model with the model as it was read.
#pragma once

#include "check/regions/report.h"
#include "driver/compared_runs.h"
#include "driver/rewrite/request.h"
#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"

#include <optional>
#include <string>

namespace kvopt::driver {

/// Results of the comparisons of two models.
struct RewriteComparison {
  /// Result of the runs; null if there were none or they were impossible.
  std::shared_ptr<ComparedRuns> verification;
  /// Result of the check; nullopt if there was none. If there is a verification, too, the check
  /// did not suffice.
  std::optional<check::CheckReport> checked;
  /// The claim of the written file about the comparison; nullopt if there was none, or if the model
  /// may not be written.
  std::optional<ir::ManifestComparison> claim;
  /// The reason that the models could not be compared; empty if they were compared, or if
  /// verification was off.
  std::string notVerified;

  /// Whether a comparison has found a difference.
  bool isDifferent() const;

  /// Whether the second model may be written. A model that computes something else in a run or in
  /// a step of the check, or that could not be compared, must not be written. A model whose last
  /// blocks no run can reach is written with that verdict, as is one that the check finds equal in
  /// its whole scope.
  bool mayBeWritten() const;

  /// Adds a part that was not looked at to every result; nothing if it is empty.
  void noteGap(const std::string& gap);

  /// A warning where the check finds a difference that the run does not show; empty elsewhere.
  std::string contradiction() const;
};

/// Two models with inferred shapes, and how they are driven.
struct RewrittenPair {
  /// Digest of the file that was rewritten (digestOf).
  const std::string& digest;
  const ir::Model& original;
  const ir::Manifest& driven;
  const ir::Model& written;
  const ir::Manifest& manifest;
  /// The first step of the written model, if the rewrite separated or copied one.
  const ir::Model* firstStep = nullptr;
  /// Whether the rewrite separated the first step, so that it is new.
  bool hasNewFirstStep = false;
  std::string untested; ///< see TestedManifest
};

/// Compares the models as `request` says: without running them, by running both, or first the one
/// and then the other (VerificationExtent; a build without the runtime only checks). Fails if a
/// model cannot be run or contradicts its manifest. If a check shows equality in its whole scope,
/// it suffices that the runtime lacks an operator.
llvm::Expected<RewriteComparison>
compareRewritten(const RewrittenPair& pair, const RewriteRequest& request, const Toolkit& toolkit);

} // namespace kvopt::driver
