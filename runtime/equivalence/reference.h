// Replay of recorded steps: a model against outputs that another engine computed.
#pragma once

#include "runtime/equivalence/comparison.h"
#include "runtime/equivalence/reference_steps.h"
#include "runtime/exec/executor.h"
#include "runtime/session/session.h"

#include <string>
#include <vector>

namespace kvopt::runtime {

/// One tensor of one step, compared.
struct TensorComparison {
  std::string name;
  Comparison comparison;
  int64_t skipped = 0; ///< elements of padded positions, which a finite mask leaves undefined
  double allowed = 0;  ///< the absolute tolerance that was applied
  /// How element types or shapes differ; empty where they do not. Such a comparison is a violation.
  std::string mismatch;
};

struct StepComparison {
  std::string phase; ///< prefill, chunk or decode
  int64_t tokens = 0;
  int64_t pastTokens = 0; ///< tokens that the caches held before the step
  std::vector<TensorComparison> outputs;
  std::vector<TensorComparison> caches; ///< valid regions
};

struct ComparisonReport {
  std::vector<StepComparison> steps;
  /// The most likely token, where there are scores; near ties within a measured budget are equal.
  bool tokensEqual = true;
  /// Whether there was a most likely token at all.
  bool anyToken = false;
  /// Steps after the first that the first side refused, and why it refused the first of them: a
  /// table of positions has an end, an exported mask may take single tokens only. They were not
  /// compared, and say nothing about the models.
  int64_t refusedSteps = 0;
  std::string refusal;
  /// Differences besides those of numbers, a sentence each: other outputs, inputs or caches, and a
  /// step that the first side takes and the second refuses.
  std::vector<std::string> differences;
  /// Whether the models hand anything from one step to the next.
  bool hasCaches = false;

  /// Whether something was compared and any of it differs beyond its tolerance, or the sides differ
  /// in another way.
  bool isDifferent() const;
  /// Whether enough was compared to call the sides equal: some output and, where there are caches,
  /// a step after earlier tokens, unless the first side refuses such steps.
  bool isConclusive() const;
  /// Nothing differs, and enough was compared.
  bool equal() const { return isConclusive() && !isDifferent(); }
  /// The comparison with the largest difference; null when nothing was compared.
  const TensorComparison* worst() const;
};

/// The same steps with what the session computes for the recorded inputs in the place of the
/// recorded outputs. Ends, and says why in `ended`, where the session refuses a step after the
/// first.
llvm::Expected<std::vector<ReferenceStep>>
recordOutputs(Session& session, llvm::ArrayRef<ReferenceStep> steps, std::string& ended);

/// Rows that caches which grow had before the first recorded step.
int64_t recordedPast(const ir::Manifest& manifest, llvm::ArrayRef<ReferenceStep> steps);

/// The batch of a recording: by the caches, whose rows need not be those of the token ids, or else
/// by inputs of the new tokens; nullopt where neither is recorded.
std::optional<int64_t> recordedBatch(const ir::Manifest& manifest,
                                     llvm::ArrayRef<ReferenceStep> steps);

/// Whether the recording can be run without a session, and was made of other steps than a session
/// takes: it holds every input of the graph at every step, caches too, and earlier rows before the
/// first step, other lengths than the manifest feeds, or no token ids that tell the batch.
bool isDrivenOtherwise(const ir::Graph& graph, const ir::Manifest& manifest,
                       llvm::ArrayRef<ReferenceStep> steps);

/// Runs each step with everything that was recorded for it, caches too, and compares every output
/// of the graph that was recorded, whole.
llvm::Expected<ComparisonReport> replayAsRecorded(const ir::Graph& graph, Executor& executor,
                                                  llvm::ArrayRef<ReferenceStep> steps,
                                                  Tolerance tolerance);

/// Replays the steps through a fresh session: recorded inputs that the model declares are fed,
/// lengths too; caches are the session's own, which is seeded with rows that were recorded before
/// the first step. Every recorded output is compared, presents over their valid
/// region; positions that the recorded attention_mask hides are left out and counted.
llvm::Expected<ComparisonReport>
replayReference(Session& session, llvm::ArrayRef<ReferenceStep> steps, Tolerance tolerance);

} // namespace kvopt::runtime
