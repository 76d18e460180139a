// What a verification runs: the runs of the defaults, and how they are fitted to two models.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/equivalence/planned_steps.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Which sizes of a run the user stated. They are kept as far as the caches have room, and the
/// report says where they have not; the others give way first.
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

  /// Applies to every run.
  void setTolerance(runtime::Tolerance tolerance);
  void setRecipes(const std::vector<runtime::InputRecipe>& recipes);
  /// Tokens of the longest run.
  int64_t tokens() const;

  std::vector<runtime::EquivalencePlan> runs;
  /// Runs are added that come to the landmarks of both models (`landmarksOf`), and with their sizes
  /// as sizes of steps and batches (driver/verify/visits.h).
  bool visitsLandmarks = false;
  /// Tokens of an additional run with real tokens; 0 adds none.
  int64_t depth = 0;
  RequestedSizes requested;
};

/// Three steps: a padded prefill of 17 tokens in three batch rows, a chunk and a decode step.
runtime::EquivalencePlan quickVerification();

/// Batches of 3 and 1; prompts of 1, 5 and 33; no, left and right padding; chunks of several sizes
/// and decode steps after each; and what the landmarks of the two models add.
VerificationPlan fullVerification();

/// The most tokens that a run of the defaults takes of a model with as many weights: what is worth
/// a minute or so of an ordinary processor.
int64_t affordableTokens(const ir::Graph& graph);

/// Number of weights of a model without those in nested graphs; at least 1.
int64_t weightCount(const ir::Graph& graph);

/// A run of one batch row and `tokens` tokens, in chunks that keep scores and logits small, that
/// ends with decode steps.
runtime::EquivalencePlan deepRun(const runtime::EquivalencePlan& like, int64_t tokens);

/// The most tokens that the caches hold; INT64_MAX where nothing limits them.
int64_t capacityOf(const ir::Manifest& manifest);

/// The run in the batch size and step length that the model's token ids fix, without the tokens
/// that caches of fixed capacity have no room for. Where growing caches have a fixed extent, one
/// step after as many made-up rows.
runtime::EquivalencePlan fittedPlan(runtime::EquivalencePlan plan, const ir::Graph& graph,
                                    const ir::Manifest& manifest, RequestedSizes requested = {});

/// The same for the fixed extents of token ids, or of their embeddings, alone.
void fitTokenInputs(const ir::Graph& graph, const ir::Manifest& manifest,
                    runtime::EquivalencePlan& plan);
/// The same for the fixed extents of growing caches alone.
void fitFixedPast(const ir::Manifest& manifest, runtime::EquivalencePlan& plan);

/// Whether the capacity is the manifest's word alone: caches in one buffer whose extent the graph
/// leaves open, or no buffer or block of that capacity at all. A manifest may then keep steps from
/// being compared that the model would take.
bool limitsByMetadata(const ir::Graph& graph, const ir::Manifest& manifest);

const char* paddingName(runtime::Padding padding);

} // namespace kvopt::driver
