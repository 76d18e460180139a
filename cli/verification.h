// Verification of models by execution: plans, reports, their text and JSON.
#pragma once

#include "cli/quantization_check.h"
#include "ir/diagnostic.h"
#include "runtime/equivalence.h"

namespace kvopt {

/// What was compared, and how it came out.
struct VerificationReport {
  ComparisonReport comparison;
  Tolerance tolerance;
  int64_t batch = 0;
  int64_t vocabulary = 0;
  /// Rows that the caches had before the first step (EquivalencePlan::pastRows).
  int64_t pastRows = 0;
  /// Inputs for which nothing says what to feed (guessedInputs): both models got the same zeros,
  /// trues or made-up numbers.
  std::vector<std::string> guessed;
  /// Of the second session: what was written to and copied in cache memory.
  SessionStatistics second;
  /// Where one model's caches are quantized: `comparison` is then that of the model without
  /// quantization.
  std::optional<QuantizationReport> quantization;

  bool equal() const {
    return comparison.equal() && comparison.tokensEqual && (!quantization || quantization->equal());
  }
};

/// Prefill 33, chunk 7, 24 decode steps.
EquivalencePlan quickVerification();
/// Prefill 33, chunks 16, 1 and 7, 64 decode steps, batch 2.
EquivalencePlan fullVerification();

/// A model that can be run, with how to drive it.
struct PreparedModel {
  std::unique_ptr<Model> model;
  Manifest manifest;
};

/// Imports a file, infers shapes, and takes its manifest or finds out what drives it.
llvm::Expected<PreparedModel> prepareModel(const std::string& path, const Registries& registries);

/// What a computation of the model may be off by at most: 1e-4 for 32-bit models, 2e-2 where
/// inputs, outputs or weights are float16 and 1e-1 where they are bfloat16, whose roundings are
/// 2^13 and 2^16 times as coarse. `roundings` is how many sides of a comparison round in 16 bits:
/// two models, or one against recorded outputs. Between two models it is the limit of a budget that
/// is measured (`compareSessions`).
Tolerance toleranceFor(const Graph& graph, int roundings);

/// The plan in the batch size and step length that the model's token ids fix, without the tokens
/// that caches of fixed capacity have no room for. Where growing caches have a fixed extent, one
/// step after as many made-up rows.
EquivalencePlan fittedPlan(EquivalencePlan plan, const Graph& graph, const Manifest& manifest);

/// A copy, as if it had been written and read.
llvm::Expected<std::unique_ptr<Model>> cloneModel(const Model& model, const Registries& registries);

/// A session of the plan's batch with room for its tokens; rows that nobody wrote are poisoned.
llvm::Expected<std::unique_ptr<Session>> openForPlan(const Model& model, const Manifest& manifest,
                                                     const EquivalencePlan& plan, unsigned threads,
                                                     const Registries& registries);

/// Runs two prepared models (shapes inferred) side by side, as far as `b` can follow the plan; with
/// one batch row, or a shorter prompt, where `a` alone cannot start otherwise.
/// `plan.vocabulary` 0 is taken from `a`. An OriginalRefusal is the error where `a` takes no step
/// at all. Where the caches of one of them are quantized, the other is compared with what it is
/// without that, and each of its attentions with its definition (QuantizationReport).
llvm::Expected<VerificationReport> verifyModels(const Model& a, const Manifest& manifestA,
                                                const Model& b, const Manifest& manifestB,
                                                EquivalencePlan plan, unsigned threads,
                                                const Registries& registries);

/// The first model of a comparison refuses its first step, however short, with one batch row:
/// nothing can be compared. Of a missing operator the error is another one.
class OriginalRefusal : public llvm::ErrorInfo<OriginalRefusal, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<OriginalRefusal, DiagnosticError>;
  using Base::Base;
  static const char ID;
};

/// The file as it is against what a rewrite made of it.
llvm::Expected<VerificationReport> verifyRewrite(const std::string& originalPath,
                                                 const Model& rewritten, const Manifest& manifest,
                                                 const EquivalencePlan& plan,
                                                 const Registries& registries);

/// Adds `--input`.
void addInputOption(CLI::App& command, std::vector<std::string>& texts);
/// The recipes of `--input`, which is given once for each input.
llvm::Expected<std::vector<InputRecipe>> recipesOf(llvm::ArrayRef<std::string> texts);

/// `kvopt/verify/1`.
OrderedJson verificationJson(const VerificationReport& report);
/// One line: steps, largest difference, whether equal; two more for quantized caches.
std::string verificationSummary(const VerificationReport& report);

} // namespace kvopt
