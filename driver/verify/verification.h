// Verification of models by execution.
#pragma once

#include "driver/claim.h"
#include "driver/compared_runs.h"
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

/// One run, as fitted to the models.
struct VerificationRun {
  runtime::EquivalencePlan plan;
  size_t steps = 0; ///< number of steps that were compared
};

/// Comparison of two models whose caches hold codes with constant scales. The last bit of a sum may
/// round a number to either of two codes.
struct CodesReport {
  size_t caches = 0;
  int64_t compared = 0;
  int64_t different = 0;
  double largest = 0;       ///< largest difference between two codes
  double largestOutput = 0; ///< largest difference between two elements of outputs
  bool tokensEqual = true;

  /// Adds a step of a comparison; `presents` are the caches' outputs.
  void add(const runtime::StepComparison& step, const llvm::StringSet<>& presents);
  /// Whether codes differ by at most one, and only a few of them do. Another way of rounding would
  /// change half of them.
  bool areNeighbors() const {
    constexpr int64_t mostDifferent = 8; // one code in this number
    return compared != 0 && largest <= 1 && different <= compared / mostDifferent;
  }
};

/// Extent and results of a verification.
struct VerificationReport final : ComparedRuns {
  /// The steps of all runs, one run after the other.
  runtime::ComparisonReport comparison;
  std::vector<VerificationRun> runs;
  runtime::Tolerance tolerance;
  /// Parts of the plan that were not compared, and parts of the models that no run reached, with
  /// reasons.
  std::vector<std::string> notCovered;
  /// The landmarks with compared decode steps on both sides.
  std::vector<Landmark> visited;
  /// Number of variants of the second model that ran a step.
  size_t variantsRun = 0;
  /// Whether the second model, which is in pieces, was also compared as one file.
  bool comparesInOnePiece = false;
  /// Files and blocks of the second model that no run reached, so that the verdict does not cover
  /// them. Empty if the user described the runs.
  std::vector<std::string> neverRun;
  /// Description of metadata that excluded steps that the graph would accept; empty if there was
  /// none.
  std::string limitedByMetadata;
  /// Tables that only one of the models has, with the rows that no run has read.
  std::vector<std::string> unreadTables;
  /// One sentence for each claim of a manifest that neither graph proves (checkClaims).
  std::vector<std::string> unproved;
  /// Inputs with unknown contents (guessedInputs): both models received the same zeros, trues or
  /// made-up numbers.
  std::vector<std::string> guessed;
  /// Bytes written to and copied within cache memory by the sessions of the second model.
  int64_t cacheBytesWritten = 0;
  int64_t cacheBytesCopied = 0;
  /// Effect of quantized caches, if one model has them. `comparison` is then that of the model
  /// without quantization.
  std::optional<QuantizationReport> quantization;
  /// Effect of rounded rows, if one model has them. `comparison` is then that of the model without
  /// rounding.
  std::optional<RoundingReport> rounding;
  /// Differences of codes, if the caches of both models hold codes that differ. `comparison` is
  /// then that of the models without rounding to codes.
  std::optional<CodesReport> codes;
  /// The comparison that the second model claims; nullopt if it claims none. It does not affect the
  /// verdict.
  std::optional<ReportedClaim> claimed;
  /// Predictions of both models for a text, if one was given. They do not affect the verdict.
  std::optional<LikelihoodReport> likelihood;

  /// Adds `gap` to `notCovered`, once.
  void noteGap(std::string gap) override;

  bool isDifferent() const override {
    return comparison.isDifferent() || !comparison.tokensEqual ||
           (quantization && !quantization->equal()) || (rounding && !rounding->equal());
  }
  /// Whether the models are equal in all runs. The runs need not have reached every block
  /// (`neverRun`).
  bool isEqualWhereRun() const override {
    return !isDifferent() && comparison.isConclusive() && limitedByMetadata.empty() &&
           unproved.empty();
  }
  /// Whether enough was compared for a verdict.
  bool isConclusive() const {
    return comparison.isConclusive() && limitedByMetadata.empty() && unproved.empty() &&
           neverRun.empty();
  }
  bool equal() const override { return !isDifferent() && isConclusive(); }

  OrderedJson json() const override;
  std::vector<std::string> verdict() const override;
  std::string summary(bool isDetailed) const override;
};

/// A model that can be run, and the manifest that drives it.
struct PreparedModel {
  std::unique_ptr<ir::Model> model;
  ir::Manifest manifest;
  /// The manifest's first step; null if it names none.
  std::unique_ptr<ir::Model> firstStep;
  std::string untested; ///< see TestedManifest
};

/// Opens a model and its first step, infers shapes, and reads the manifest or derives one from the
/// graph.
llvm::Expected<PreparedModel> prepareModel(const ModelSource& source, const Toolkit& toolkit);

/// The same for a model that runs with inputs that kvopt makes: the roles of a derived manifest are
/// tested (testedManifest).
llvm::Expected<PreparedModel> prepareTested(const ModelSource& source, const Toolkit& toolkit,
                                            llvm::ArrayRef<ir::InputRecipe> recipes);

/// Tolerance for results of the model (docs/tolerances.md): 1e-4 for 32-bit models, 2e-2 if inputs,
/// outputs or weights are float16, 1e-1 if they are bfloat16. These types round 2^13 and 2^16 times
/// as coarsely. `roundings` is the number of sides of a comparison that round to 16 bits: both of
/// two models, or one model against recorded outputs. Between two models, the tolerance is the
/// limit of a measured budget (`compareSessions`).
runtime::Tolerance toleranceFor(const ir::Graph& graph, int roundings);

/// Whether attention passes its state between tiles in float16 (ManifestTiles::state).
bool roundsStates(const ir::Manifest& manifest);

/// Tolerance between two models: toleranceFor(original, 2), or at least that of float16 models if
/// the second one rounds states (`roundsStates`).
runtime::Tolerance toleranceBetween(const ir::Graph& original, const ir::Manifest& second);

/// A copy of a model, as if it had been written and read.
llvm::Expected<std::unique_ptr<ir::Model>> cloneModel(const ir::Model& model,
                                                      const Toolkit& toolkit);

/// A session with room for `tokens` tokens and poisoned contents for rows that no step wrote.
llvm::Expected<std::unique_ptr<runtime::Session>>
openForTokens(const ir::Model& model, const ir::Manifest& manifest, int64_t batch, int64_t tokens,
              unsigned threads, const Toolkit& toolkit);

/// Runs two prepared models (shapes inferred) side by side. If `a` refuses a run, the run is
/// repeated with one batch row, then with shorter prompts. Fails with an OriginalRefusal if `a`
/// refuses every step. For a run with a vocabulary of 0, that of `a` is used. If one model has
/// quantized caches, the other is compared with that model without quantization, and each quantized
/// attention with its definition (QuantizationReport); likewise for rounded rows (RoundingReport).
/// If the caches of both hold codes with constant scales, and some codes differ by one, the models
/// are compared without rounding to codes (CodesReport). `firstOfB` is the first step of `b`, if
/// its manifest names one (`compareSessions`).
llvm::Expected<VerificationReport> verifyModels(const ir::Model& a, const ir::Manifest& manifestA,
                                                const ir::Model& b, const ir::Manifest& manifestB,
                                                const VerificationPlan& plan, unsigned threads,
                                                const Toolkit& toolkit,
                                                const ir::Model* firstOfB = nullptr);

/// Checks the claims of both manifests against both graphs (checkClaims), then compares the models
/// (verifyModels). An unproved limit on steps is ignored: the steps that it excludes run on both
/// models, unless one of them fails there. Fails if a graph contradicts its manifest.
llvm::Expected<VerificationReport> verifyPrepared(const PreparedModel& a, const PreparedModel& b,
                                                  const VerificationPlan& plan, unsigned threads,
                                                  const Toolkit& toolkit);

/// Error: the first model of a comparison refuses its first step with one batch row, even for the
/// shortest prompt, so that nothing can be compared. A missing operator is another error.
class OriginalRefusal : public llvm::ErrorInfo<OriginalRefusal, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<OriginalRefusal, DiagnosticError>;
  using Base::Base;
  static const char ID;
};

/// Compares a file with the model into which it was rewritten.
llvm::Expected<VerificationReport>
verifyRewrite(const std::string& originalPath, const ir::Model& rewritten,
              const ir::Manifest& manifest, const VerificationPlan& plan, const Toolkit& toolkit);

} // namespace kvopt::driver
