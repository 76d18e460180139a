// Runs that bring two models to their landmarks.
#pragma once

#include "driver/verify/landmarks.h"
#include "runtime/equivalence/planned_steps.h"

namespace kvopt::driver {

/// Runs around each landmark t: decode steps after t - 2 to t + 1 earlier tokens, and chunks of 3
/// and 2 tokens after t - 1 and t. They start from made-up rows (EquivalencePlan::pastRows), so
/// that every landmark costs the same. No run exceeds `capacity`. Batch size, seed, recipes and
/// tolerance are those of `like`.
std::vector<runtime::EquivalencePlan> visitsOf(llvm::ArrayRef<Landmark> landmarks,
                                               const runtime::EquivalencePlan& like,
                                               int64_t capacity);

/// One run of real tokens with the decode steps of `visitsOf` at the landmarks up to `most` tokens,
/// for models whose rows cannot be made up. The chunks between landmarks are small enough to keep
/// scores and logits small. nullopt if there is no such landmark.
std::optional<runtime::EquivalencePlan> runThrough(llvm::ArrayRef<Landmark> landmarks,
                                                   const runtime::EquivalencePlan& like,
                                                   int64_t capacity, int64_t most);

/// Runs with first and later steps of t - 1, t and t + 1 tokens for each landmark t, and with batch
/// sizes around each small t that the graph compares with something. No run exceeds `capacity` or
/// has steps of more than 1,024 tokens. The cheapest runs come first.
std::vector<runtime::EquivalencePlan> sizesAround(llvm::ArrayRef<Landmark> landmarks,
                                                  const runtime::EquivalencePlan& like,
                                                  int64_t capacity);

/// Whether the rows of both models at the end of a run fit in memory: at most 16 bytes for each
/// weight, but at least 256 MiB and at most 2 GiB in all. Reduces the run to one batch row if only
/// that fits.
bool fitRows(runtime::EquivalencePlan& plan, llvm::ArrayRef<const ir::Manifest*> manifests,
             int64_t weights);

/// Budget for runs around landmarks, in tokens times weights: a third of the cost of the plan's
/// runs, but at least about a second of work.
int64_t productsForVisits(llvm::ArrayRef<runtime::EquivalencePlan> runs, int64_t weights);

/// The numbers of earlier tokens after which decode steps are compared: t - 1, t and t + 1, as far
/// as they are between 1 and `capacity` - 1.
std::vector<int64_t> pastsAround(const Landmark& landmark, int64_t capacity);

} // namespace kvopt::driver
