// Verification of models by execution.
#pragma once

#include "driver/recover.h"
#include "driver/verify/landmarks.h"
#include "driver/verify/likelihood.h"
#include "driver/verify/plan.h"
#include "driver/verify/quantization.h"
#include "driver/verify/rounding.h"
#include "runtime/equivalence/equivalence.h"
#include "support/diagnostic.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::driver {

/// One run, as it was fitted to the models.
struct VerificationRun {
  runtime::EquivalencePlan plan;
  size_t steps = 0; ///< that were compared
};

/// Two models whose caches hold codes with constant scales, as they are: codes that the last bit of
/// a sum has rounded to different sides.
struct CodesReport {
  size_t caches = 0;
  int64_t compared = 0;
  int64_t different = 0;
  double largest = 0;       ///< difference between two codes
  double largestOutput = 0; ///< difference between two elements of outputs
  bool tokensEqual = true;

  /// Adds a step of a comparison; `presents` are the caches' outputs.
  void add(const runtime::StepComparison& step, const llvm::StringSet<>& presents);
  /// No code is further than the next one, and few are: another way to round changes half of them.
  bool areNeighbors() const {
    constexpr int64_t mostDifferent = 8; // one in so many
    return compared != 0 && largest <= 1 && different <= compared / mostDifferent;
  }
};

/// What was compared, and how it came out.
struct VerificationReport {
  /// The steps of all runs, one run after the other.
  runtime::ComparisonReport comparison;
  std::vector<VerificationRun> runs;
  runtime::Tolerance tolerance;
  /// What the defaults or the user asked for and was not compared, and what no run reached, with
  /// the reason.
  std::vector<std::string> notCovered;
  /// The landmarks that decode steps were compared on both sides of.
  std::vector<Landmark> visited;
  /// Variants of the second model that took a step.
  size_t variantsRun = 0;
  /// The file of a second model in pieces was compared, too.
  bool comparesInOnePiece = false;
  /// Files and blocks of the second model that no run reached, so that the verdict says nothing of
  /// them. Empty where the user described the runs.
  std::vector<std::string> neverRun;
  /// How metadata of a model kept steps from being compared that its graph would take; empty where
  /// none did.
  std::string limitedByMetadata;
  /// A sentence for each claim of a manifest that neither graph proves (checkClaims).
  std::vector<std::string> unproved;
  /// Inputs for which nothing says what to feed (guessedInputs): both models got the same zeros,
  /// trues or made-up numbers.
  std::vector<std::string> guessed;
  /// Of the sessions of the second model: what was written to and copied in cache memory.
  int64_t cacheBytesWritten = 0;
  int64_t cacheBytesCopied = 0;
  /// Where one model's caches are quantized: `comparison` is then that of the model without
  /// quantization.
  std::optional<QuantizationReport> quantization;
  /// Where rows of one model's caches are rounded to a narrower type: `comparison` is then that of
  /// the model without rounding.
  std::optional<RoundingReport> rounding;
  /// Where codes of the caches of both models differ: `comparison` is then that of the models
  /// without rounding to codes.
  std::optional<CodesReport> codes;
  /// Where a text was given: what both models predict of it. It does not affect the verdict.
  std::optional<LikelihoodReport> likelihood;

  /// Adds to `notCovered`, once.
  void noteGap(std::string gap);

  bool isDifferent() const {
    return comparison.isDifferent() || !comparison.tokensEqual ||
           (quantization && !quantization->equal()) || (rounding && !rounding->equal());
  }
  /// Equal in all runs, which need not have reached every block (`neverRun`).
  bool isEqualWhereRun() const {
    return !isDifferent() && comparison.isConclusive() && limitedByMetadata.empty() &&
           unproved.empty();
  }
  /// Enough was compared to tell.
  bool isConclusive() const {
    return comparison.isConclusive() && limitedByMetadata.empty() && unproved.empty() &&
           neverRun.empty();
  }
  bool equal() const { return !isDifferent() && isConclusive(); }
};

/// A model that can be run, with how to drive it.
struct PreparedModel {
  std::unique_ptr<ir::Model> model;
  ir::Manifest manifest;
  /// The model of the manifest's first step; null without one.
  std::unique_ptr<ir::Model> firstStep;
};

/// Opens a model, with that of its first step, infers shapes, and takes its manifest or finds out
/// what drives it.
llvm::Expected<PreparedModel> prepareModel(const ModelSource& source, const Toolkit& toolkit);

/// What a computation of the model may be off by at most: 1e-4 for 32-bit models, 2e-2 where
/// inputs, outputs or weights are float16 and 1e-1 where they are bfloat16, whose roundings are
/// 2^13 and 2^16 times as coarse. `roundings` is how many sides of a comparison round in 16 bits:
/// two models, or one against recorded outputs. Between two models it is the limit of a budget that
/// is measured (`compareSessions`).
runtime::Tolerance toleranceFor(const ir::Graph& graph, int roundings);

/// Whether the state of attention is handed from tile to tile in float16 (ManifestTiles::state).
bool roundsStates(const ir::Manifest& manifest);

/// What the second of two models may be off the first one by: toleranceFor(original, 2), or that of
/// float16 models where it rounds states (`roundsStates`), whichever is larger.
runtime::Tolerance toleranceBetween(const ir::Graph& original, const ir::Manifest& second);

/// A copy, as if it had been written and read.
llvm::Expected<std::unique_ptr<ir::Model>> cloneModel(const ir::Model& model,
                                                      const Toolkit& toolkit);

/// A session with room for so many tokens; rows that were not written are poisoned.
llvm::Expected<std::unique_ptr<runtime::Session>>
openForTokens(const ir::Model& model, const ir::Manifest& manifest, int64_t batch, int64_t tokens,
              unsigned threads, const Toolkit& toolkit);

/// Runs two prepared models (shapes inferred) side by side. Where `a` cannot take a run, it is run
/// with one batch row, then with shorter prompts. A run's vocabulary of 0 is taken from `a`. An
/// OriginalRefusal is the error where `a` takes no step at all. Where the caches of one of them are
/// quantized, the other is compared with what it is without that, and each of its attentions with
/// its definition (QuantizationReport); likewise where rows of one of them are rounded
/// (RoundingReport). Where caches of both hold codes with constant scales, and some codes differ by
/// one, the models are compared without rounding to codes (CodesReport). `firstOfB` is the model of
/// the first step of `b`, if its manifest has one (`compareSessions`).
llvm::Expected<VerificationReport> verifyModels(const ir::Model& a, const ir::Manifest& manifestA,
                                                const ir::Model& b, const ir::Manifest& manifestB,
                                                const VerificationPlan& plan, unsigned threads,
                                                const Toolkit& toolkit,
                                                const ir::Model* firstOfB = nullptr);

/// Checks the claims of both manifests against both graphs (checkClaims), then compares the models
/// (verifyModels). A limit on steps that is not proved is ignored, so that the steps that it
/// excludes run on both models, unless one of them fails there. Fails where a graph contradicts its
/// manifest.
llvm::Expected<VerificationReport> verifyPrepared(const PreparedModel& a, const PreparedModel& b,
                                                  const VerificationPlan& plan, unsigned threads,
                                                  const Toolkit& toolkit);

/// The first model of a comparison refuses its first step, however short, with one batch row:
/// nothing can be compared. Of a missing operator the error is another one.
class OriginalRefusal : public llvm::ErrorInfo<OriginalRefusal, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<OriginalRefusal, DiagnosticError>;
  using Base::Base;
  static const char ID;
};

/// The file as it is against what a rewrite made of it.
llvm::Expected<VerificationReport>
verifyRewrite(const std::string& originalPath, const ir::Model& rewritten,
              const ir::Manifest& manifest, const VerificationPlan& plan, const Toolkit& toolkit);

} // namespace kvopt::driver
