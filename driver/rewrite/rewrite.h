// Rewriting a model for a target.
#pragma once

#include "driver/forms/without_caches.h"
#include "driver/op_counts.h"
#include "driver/rewrite/comparison.h"
#include "driver/toolkit.h"
#include "passes/pass_manager.h"

#include <variant>

namespace kvopt::driver {

/// Totals and versions of a model that a rewrite may change.
struct ModelSize {
  OpCounts ops;
  int64_t opset = 0; ///< version of ONNX's own operator set
  int64_t irVersion = 0;
};
ModelSize sizeOf(ir::Model& model);

/// A model in the form of the target.
struct RewrittenModel : RewriteComparison {
  std::unique_ptr<ir::Model> model;
  ir::Manifest manifest;
  /// The model that is run once for each encoded sequence (Manifest::firstStep); null for a model
  /// that attends only to its own tokens.
  std::unique_ptr<ir::Model> firstStep;
  /// The manifest of the model before the rewrite.
  ir::Manifest exported;
  /// Other forms for ONNX Runtime that take all layers of the model, in the order in which kvopt
  /// chooses them.
  std::vector<Form> otherForms;
  /// Results of the passes: counters, assumptions, attention layers.
  std::unique_ptr<passes::PassContext> passes;
  std::vector<passes::PassTiming> timings;
  ModelSize before;
  ModelSize after;
  /// The extents that became symbols, as `batch, sequence and past`; empty if none did.
  std::string freed;
  /// Number of tokens from which the scales of codes were determined; 0 unless caches hold codes
  /// with constant scales.
  int64_t calibrationTokens = 0;
  /// The reason that some extents did not become symbols; empty if all did.
  std::string fixedBecause;
  /// Time of the rewrite, without reading and verifying.
  double milliseconds = 0;
};

/// A model that stays as it is, because a rewrite would not improve it. Either it was provably
/// written for the same target with the same capacity, or its caches are already updated in place
/// by the operators that the target would write.
struct UnchangedModel : RewriteComparison {
  std::unique_ptr<ir::Model> model;
  ir::Manifest manifest;
  ModelSize size;
  /// The operators that update the caches of a model that kvopt did not write; empty for other
  /// models.
  std::string updatedBy;
};

/// An attention layer that the target refuses, and the reason.
struct RefusedSite {
  unsigned layer = 0;
  pattern::MatchFailure failure;

  std::string id() const { return "L" + std::to_string(layer); }
};

/// An option with which a refused model is rewritten, as a trial showed.
struct Remedy {
  std::string option;    ///< `--padding none`
  std::string condition; ///< `if no batch is padded`
  size_t layers = 0;     ///< number of layers that are rewritten with it

  /// `--padding none rewrites 2 layers, if no batch is padded`.
  std::string text() const;
};

/// A model that is not rewritten, because the target refuses layers.
struct RefusedModel {
  std::string message;
  std::vector<RefusedSite> sites;
  size_t siteCount = 0; ///< number of all layers, refused or not
  /// Options that help; see driver/rewrite/remedies.h.
  std::vector<Remedy> remedies;
  /// The advice for a model in which no step changes keys and values, so that every form that kvopt
  /// would choose has nothing to do.
  std::optional<Recommendation> withoutCaches;
};

using RewriteResult = std::variant<RewrittenModel, UnchangedModel, RefusedModel>;

/// Rewrites `model`, a result of openModel, for the request's target, and compares the result with
/// the model as it was read. The file is not read again. Fails for a target that does not exist,
/// for options that it does not accept, and for an invalid model. If the target refuses the model,
/// the result is a RefusedModel.
llvm::Expected<RewriteResult> rewrite(std::unique_ptr<ir::Model> model,
                                      const RewriteRequest& request, const Toolkit& toolkit);

} // namespace kvopt::driver
