// Rewriting a model for a target.
#pragma once

#include "driver/op_counts.h"
#include "driver/rewrite/request.h"
#include "driver/toolkit.h"
#include "driver/verify/verification.h"
#include "passes/pass_manager.h"

#include <variant>

namespace kvopt::driver {

/// What a rewrite changes of a model as a whole.
struct ModelSize {
  OpCounts ops;
  int64_t opset = 0; ///< of ONNX's own operator set
  int64_t irVersion = 0;
};
ModelSize sizeOf(ir::Model& model);

/// A model in the form of the target.
struct RewrittenModel {
  std::unique_ptr<ir::Model> model;
  ir::Manifest manifest;
  /// What is computed once for an encoded sequence (Manifest::firstStep); null for a model that
  /// attends to its own tokens only.
  std::unique_ptr<ir::Model> firstStep;
  /// What drove the model before.
  ir::Manifest exported;
  /// How it came about: counters of the passes, assumptions, sites.
  std::unique_ptr<passes::PassContext> passes;
  std::vector<passes::PassTiming> timings;
  ModelSize before;
  ModelSize after;
  /// The extents that became symbols, as `batch, sequence and past`; empty where none did.
  std::string freed;
  /// Tokens that told the scales of codes; 0 where caches do not hold codes with constant scales.
  int64_t calibrationTokens = 0;
  /// Of extents that were to become symbols and stayed, why.
  std::string fixedBecause;
  /// Without reading and verifying.
  double milliseconds = 0;
  /// nullopt where verification was off or not possible.
  std::optional<VerificationReport> verification;
  /// Why the model could not be compared with what it was; empty where it was, or was not to be.
  std::string notVerified;

  /// What does not compute the same must not be written, and neither what could not be compared. A
  /// form whose last blocks are too far for any run is written, with that verdict.
  bool mayBeWritten() const {
    return notVerified.empty() && (!verification || verification->isEqualWhereRun());
  }
};

/// A model that stays as it is, because a rewrite would make nothing better: it was written for the
/// same target, with room for as many tokens, as is proved, or its caches are updated in place by
/// the operators that the target would write.
struct UnchangedModel {
  std::unique_ptr<ir::Model> model;
  ir::Manifest manifest;
  ModelSize size;
  /// The operators that update the caches of a model that kvopt did not write; empty for others.
  std::string updatedBy;
  /// Of a model whose caches share buffers from now on, against the model as it was read.
  std::optional<VerificationReport> verification;
};

/// A site that the target does not take, and why.
struct RefusedSite {
  unsigned layer = 0;
  pattern::MatchFailure failure;

  std::string id() const { return "L" + std::to_string(layer); }
};

/// A model that stays as it is.
struct RefusedModel {
  std::string message;
  std::vector<RefusedSite> sites;
  size_t siteCount = 0; ///< with those that are not refused
};

using RewriteResult = std::variant<RewrittenModel, UnchangedModel, RefusedModel>;

/// Rewrites `model`, which openModel returned, for the request's target, and compares the result
/// with the model as it was read. The file is not read again. Fails for a target that does not
/// exist, options that it does not take, and a model that breaks the rules; a model that the target
/// does not take is a RefusedModel.
llvm::Expected<RewriteResult> rewrite(std::unique_ptr<ir::Model> model,
                                      const RewriteRequest& request, const Toolkit& toolkit);

} // namespace kvopt::driver
