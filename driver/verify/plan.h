// Plan of a verification: the default runs, and their adaptation to two models.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/equivalence/planned_steps.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Whether the user requested each size of a run. Requested sizes are kept as far as the caches
/// have room, and the report says where they do not; other sizes are reduced first.
struct RequestedSizes {
  bool prompt = false;
  bool chunks = false;
  bool steps = false;

  bool any() const { return prompt || chunks || steps; }
};

/// Runs of two models side by side, each from empty caches.
struct VerificationPlan {
  VerificationPlan(runtime::EquivalencePlan run)
      : runs{std::move(run)} {} // NOLINT: one run is a plan
  explicit VerificationPlan(std::vector<runtime::EquivalencePlan> allRuns)
      : runs(std::move(allRuns)) {}

  /// Sets the tolerance of every run.
  void setTolerance(runtime::Tolerance tolerance);
  void setRecipes(const std::vector<ir::InputRecipe>& recipes);
  /// Number of tokens of the longest run.
  int64_t tokens() const;

  std::vector<runtime::EquivalencePlan> runs;
  /// Whether to add runs that reach the landmarks of both models (`landmarksOf`), and runs whose
  /// steps and batches have the sizes of landmarks (driver/verify/visits.h).
  bool visitsLandmarks = false;
  /// Number of tokens of an additional run with real tokens; 0 adds none.
  int64_t depth = 0;
  RequestedSizes requested;
};

/// A run of three steps: a padded prefill of 17 tokens in three batch rows, a chunk, and a decode
/// step.
runtime::EquivalencePlan quickVerification();

/// Batches of 3 and 1; prompts of 1, 5 and 33 tokens; no, left and right padding; chunks of several
/// sizes, with decode steps after each; and runs for the landmarks of both models.
VerificationPlan fullVerification();

/// Largest number of tokens of a default run, from the number of weights of the model: about a
/// minute of work for an ordinary processor.
int64_t affordableTokens(const ir::Graph& graph);

/// Number of weights of a model, without those in nested graphs; at least 1.
int64_t weightCount(const ir::Graph& graph);

/// A run of one batch row and `tokens` tokens that ends with decode steps. Its chunks are small
/// enough to keep scores and logits small.
runtime::EquivalencePlan deepRun(const runtime::EquivalencePlan& like, int64_t tokens);

/// Largest number of tokens that the caches hold; INT64_MAX if there is no limit.
int64_t capacityOf(const ir::Manifest& manifest);

/// The run with the batch size and step length that the model's token ids fix, without the tokens
/// that exceed the capacity of the caches. If growing caches have a fixed extent, the run is one
/// step after that number of made-up rows.
runtime::EquivalencePlan fittedPlan(runtime::EquivalencePlan plan, const ir::Graph& graph,
                                    const ir::Manifest& manifest, RequestedSizes requested = {});

/// Fits the run only to the fixed extents of token ids, or of their embeddings.
void fitTokenInputs(const ir::Graph& graph, const ir::Manifest& manifest,
                    runtime::EquivalencePlan& plan);
/// Fits the run only to the fixed extents of growing caches.
void fitFixedPast(const ir::Manifest& manifest, runtime::EquivalencePlan& plan);

/// Whether only the manifest states the capacity: the graph leaves the extent of a buffer open, or
/// has no buffer or block of that capacity. The manifest may then exclude steps from the comparison
/// that the model would accept.
bool limitsByMetadata(const ir::Graph& graph, const ir::Manifest& manifest);

const char* paddingName(runtime::Padding padding);

} // namespace kvopt::driver
