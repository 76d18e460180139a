// Runs that bring two models to landmarks.
#pragma once

#include "driver/verify/landmarks.h"
#include "runtime/equivalence/planned_steps.h"

namespace kvopt::driver {

/// Runs from made-up rows (EquivalencePlan::pastRows), so that a landmark costs the same wherever
/// it is: decode steps after t - 2 to t + 1 earlier tokens, and chunks of 3 and 2 tokens after t -
/// 1 and t, for each landmark t. None goes beyond `capacity`. Batch size, seed, recipes and
/// tolerance are those of `like`.
std::vector<runtime::EquivalencePlan> visitsOf(llvm::ArrayRef<Landmark> landmarks,
                                               const runtime::EquivalencePlan& like,
                                               int64_t capacity);

/// One run with real tokens that takes the decode steps of `visitsOf` at the landmarks up to `most`
/// tokens, for models whose rows cannot be made up. It has chunks in between, small enough to keep
/// scores and logits small. std::nullopt if there is no such landmark.
std::optional<runtime::EquivalencePlan> runThrough(llvm::ArrayRef<Landmark> landmarks,
                                                   const runtime::EquivalencePlan& like,
                                                   int64_t capacity, int64_t most);

/// Runs in which the sizes of steps are t - 1, t and t + 1 for each landmark t, as first steps and
/// as later ones, and batch sizes around each small t that the graph compares something with. None
/// goes beyond `capacity`, or has steps of more than 1,024 tokens. The cheapest runs come first.
std::vector<runtime::EquivalencePlan> sizesAround(llvm::ArrayRef<Landmark> landmarks,
                                                  const runtime::EquivalencePlan& like,
                                                  int64_t capacity);

/// Whether the rows that both models hold at the end of a run have room: in a few times the memory
/// of the weights, and in 2 GiB. The run gets one batch row where that is what has room.
bool fitRows(runtime::EquivalencePlan& plan, llvm::ArrayRef<const ir::Manifest*> manifests,
             int64_t weights);

/// Tokens times weights that runs around landmarks may cost in addition to those of the plan: a
/// third of what those cost, or what takes about a second.
int64_t productsForVisits(llvm::ArrayRef<runtime::EquivalencePlan> runs, int64_t weights);

/// The numbers of earlier tokens, between 1 and `capacity` - 1, after which decode steps are to be
/// compared: t - 1, t and t + 1.
std::vector<int64_t> pastsAround(const Landmark& landmark, int64_t capacity);

} // namespace kvopt::driver
