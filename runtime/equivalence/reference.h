// Replay of recorded steps: compares a model with the outputs of another engine.
#pragma once

#include "runtime/equivalence/comparison.h"
#include "runtime/equivalence/reference_steps.h"
#include "runtime/exec/executor.h"
#include "runtime/session/session.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::runtime {

/// Comparison of one tensor of one step.
struct TensorComparison {
  std::string name;
  Comparison comparison;
  int64_t skipped = 0; ///< elements of padded positions, which a finite mask leaves undefined
  /// Further elements that were not compared: NaN in the first model and numbers in the second.
  int64_t nanInFirst = 0;
  double allowed = 0; ///< the absolute tolerance that was applied
  /// Of a tensor with rows of padding that differs: the same without these rows. nullopt for
  /// others.
  std::optional<Comparison> visible;
  /// How element types or shapes differ; empty where they do not. Such a comparison is a violation.
  std::string mismatch;
};

struct StepComparison {
  std::string phase; ///< prefill, chunk or decode
  int64_t tokens = 0;
  int64_t pastTokens = 0; ///< number of tokens in the caches before the step
  std::vector<TensorComparison> outputs;
  std::vector<TensorComparison> caches; ///< valid regions
};

struct ComparisonReport {
  std::vector<StepComparison> steps;
  /// Whether the most likely tokens agree, if there are scores; near ties within a measured budget
  /// count as equal.
  bool tokensEqual = true;
  /// Whether there was a most likely token at all.
  bool anyToken = false;
  /// Number of steps after the first that the first side refused, and the reason of the first
  /// refusal: for example, the end of a table of positions, or a mask for single tokens only. These
  /// steps were not compared and say nothing about the models.
  int64_t refusedSteps = 0;
  std::string refusal;
  /// Differences other than numbers, one sentence each: other outputs, inputs or caches, or a step
  /// that only the second side refuses.
  std::vector<std::string> differences;
  /// Whether the models pass anything from one step to the next.
  bool hasCaches = false;
  /// Whether a most likely token differs after a token that is not padding.
  bool visibleTokensEqual = true;

  /// Number of elements that are not compared because they are NaN in the first model.
  int64_t nanInFirst() const;
  /// Outputs and caches that were not compared, because all of their elements are NaN in the first
  /// model.
  std::vector<std::string> nothingButNan() const;
  /// Whether the sides differ, and only in rows of padding: all rows of tokens agree.
  bool differsInPaddingOnly() const;
  /// Whether something was compared and any of it differs beyond its tolerance, or the sides differ
  /// in another way.
  bool isDifferent() const;
  /// Whether enough was compared to call the sides equal: at least one output and, if there are
  /// caches, a step after earlier tokens, unless the first side refuses such steps. Each output and
  /// cache must be a number somewhere.
  bool isConclusive() const;
  /// Whether nothing differs and enough was compared.
  bool equal() const { return isConclusive() && !isDifferent(); }
  /// The comparison with the largest difference; null if nothing was compared.
  const TensorComparison* worst() const;
};

/// The same steps with the session's outputs for the recorded inputs instead of the recorded
/// outputs. Ends, with the reason in `ended`, if the session refuses a step after the first.
llvm::Expected<std::vector<ReferenceStep>>
recordOutputs(Session& session, llvm::ArrayRef<ReferenceStep> steps, std::string& ended);

/// Number of rows in growing caches before the first recorded step.
int64_t recordedPast(const ir::Manifest& manifest, llvm::ArrayRef<ReferenceStep> steps);

/// Batch size of a recording: from the caches, whose rows may differ from those of the token ids,
/// otherwise from inputs of the new tokens; nullopt if neither is recorded.
std::optional<int64_t> recordedBatch(const ir::Manifest& manifest,
                                     llvm::ArrayRef<ReferenceStep> steps);

/// Whether the recording can be run without a session, and its steps differ from those of a
/// session. It contains every input of the graph at every step, including caches, and one of these
/// holds: there are rows before the first step, the lengths differ from those that the manifest
/// prescribes, or no token ids determine the batch.
bool isDrivenOtherwise(const ir::Graph& graph, const ir::Manifest& manifest,
                       llvm::ArrayRef<ReferenceStep> steps);

/// Runs each step with all recorded inputs, including caches, and compares every recorded output of
/// the graph completely.
llvm::Expected<ComparisonReport> replayAsRecorded(const ir::Graph& graph, Executor& executor,
                                                  llvm::ArrayRef<ReferenceStep> steps,
                                                  Tolerance tolerance);

/// Replays the steps through a new session. It receives the recorded inputs that the model
/// declares, including lengths. Caches belong to the session and start with the rows recorded
/// before the first step. Every recorded output is compared, presents over their valid region.
/// Positions that the recorded attention_mask hides are skipped and counted.
llvm::Expected<ComparisonReport>
replayReference(Session& session, llvm::ArrayRef<ReferenceStep> steps, Tolerance tolerance);

} // namespace kvopt::runtime
