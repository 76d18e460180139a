// Step lengths, batch sizes and numbers of earlier tokens around landmarks.
#include "driver/verify/visits.h"

#include <algorithm>
#include <set>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

/// Number of tokens of a chunk on the way to a landmark.
constexpr int64_t chunkTokens = 256;
/// Largest number of tokens of a step; scores and logits of longer steps may not fit into memory.
constexpr int64_t mostStep = 1024;
/// Largest batch size; larger constants that the graph compares are not batch sizes.
constexpr int64_t mostBatch = 8;

EquivalencePlan emptyPlan(const EquivalencePlan& like) {
  EquivalencePlan plan = like;
  plan.padding = Padding::None;
  plan.pastRows = 0;
  plan.chunks.clear();
  plan.decodeSteps = 0;
  return plan;
}

/// Ascending numbers of earlier tokens after which decode steps are compared.
std::set<int64_t> decodePasts(llvm::ArrayRef<Landmark> landmarks, int64_t capacity) {
  std::set<int64_t> pasts;
  for (const Landmark& landmark : landmarks)
    for (int64_t past = landmark.tokens - 2; past <= landmark.tokens + 1; ++past)
      if (past >= 1 && past < capacity)
        pasts.insert(past);
  return pasts;
}

} // namespace

namespace {

/// Bytes of the cached rows of one batch row after `tokens` tokens.
int64_t rowBytes(llvm::ArrayRef<const Manifest*> manifests, int64_t tokens) {
  double bytes = 0;
  for (const Manifest* manifest : manifests)
    for (const ManifestCache& cache : manifest->caches) {
      double each = static_cast<double>(byteWidth(cache.dtype).value_or(1));
      for (size_t axis = 0; axis < cache.shape.size(); ++axis)
        if (const auto* fixed = std::get_if<int64_t>(&cache.shape[axis]);
            fixed && static_cast<int64_t>(axis) != cache.sequenceAxis)
          each *= static_cast<double>(*fixed);
      bytes += each * static_cast<double>(tokens);
    }
  constexpr double most = 1e18;
  return static_cast<int64_t>(std::min(bytes, most));
}

} // namespace

bool fitRows(EquivalencePlan& plan, llvm::ArrayRef<const Manifest*> manifests, int64_t weights) {
  constexpr int64_t always = int64_t{1} << 28, never = int64_t{1} << 31;
  constexpr int64_t bytesForAWeight = 16;
  const int64_t most =
      weights >= never / bytesForAWeight ? never : std::max(always, weights * bytesForAWeight);
  const int64_t bytes = rowBytes(manifests, plan.pastRows + plan.totalTokens());
  if (bytes > most / plan.batch)
    plan.batch = 1;
  return bytes <= most;
}

int64_t productsForVisits(llvm::ArrayRef<EquivalencePlan> runs, int64_t weights) {
  constexpr int64_t always = int64_t{1} << 32;
  int64_t tokens = 0;
  for (const EquivalencePlan& plan : runs)
    tokens += plan.batch * plan.totalTokens();
  return std::max(always, weights * (tokens / 3));
}

std::vector<int64_t> pastsAround(const Landmark& landmark, int64_t capacity) {
  std::vector<int64_t> pasts;
  for (int64_t past = landmark.tokens - 1; past <= landmark.tokens + 1; ++past)
    if (past >= 1 && past < capacity)
      pasts.push_back(past);
  return pasts;
}

std::vector<EquivalencePlan> visitsOf(llvm::ArrayRef<Landmark> landmarks,
                                      const EquivalencePlan& like, int64_t capacity) {
  std::vector<EquivalencePlan> visits;
  for (int64_t past : decodePasts(landmarks, capacity)) {
    if (!visits.empty() && visits.back().pastRows + visits.back().totalTokens() == past) {
      ++visits.back().decodeSteps;
      continue;
    }
    EquivalencePlan& plan = visits.emplace_back(emptyPlan(like));
    plan.pastRows = past;
    plan.prompt = 1;
  }
  for (const Landmark& landmark : landmarks)
    for (const auto& [past, tokens] :
         {std::pair(landmark.tokens - 1, int64_t{3}), std::pair(landmark.tokens, int64_t{2})}) {
      const int64_t fitting = std::min(tokens, capacity - past);
      if (past < 1 || fitting < 2)
        continue;
      EquivalencePlan& plan = visits.emplace_back(emptyPlan(like));
      plan.pastRows = past;
      plan.prompt = fitting;
    }
  std::stable_sort(
      visits.begin(), visits.end(),
      [](const EquivalencePlan& a, const EquivalencePlan& b) { return a.pastRows < b.pastRows; });
  return visits;
}

std::optional<EquivalencePlan> runThrough(llvm::ArrayRef<Landmark> landmarks,
                                          const EquivalencePlan& like, int64_t capacity,
                                          int64_t most) {
  std::vector<int64_t> steps;
  int64_t past = 0;
  for (int64_t wanted : decodePasts(landmarks, capacity)) {
    if (wanted > most)
      break;
    for (; past < wanted; past += steps.back())
      steps.push_back(std::min(wanted - past, chunkTokens));
    steps.push_back(1);
    ++past;
  }
  if (steps.empty())
    return std::nullopt;
  EquivalencePlan plan = emptyPlan(like);
  plan.batch = 1;
  plan.prompt = steps.front();
  plan.chunks.assign(steps.begin() + 1, steps.end());
  return plan;
}

std::vector<EquivalencePlan> sizesAround(llvm::ArrayRef<Landmark> landmarks,
                                         const EquivalencePlan& like, int64_t capacity) {
  std::vector<EquivalencePlan> runs;
  std::set<int64_t> batches, prompts;
  for (const Landmark& landmark : landmarks)
    for (int64_t size = std::max<int64_t>(landmark.tokens - 1, 1); size <= landmark.tokens + 1;
         ++size) {
      if (landmark.kind == LandmarkKind::Compared && landmark.tokens <= mostBatch)
        batches.insert(size);
      if (size <= std::min(capacity, mostStep))
        prompts.insert(size);
    }
  for (int64_t batch : batches) {
    EquivalencePlan& plan = runs.emplace_back(emptyPlan(like));
    plan.batch = batch;
    plan.prompt = std::min<int64_t>(5, capacity);
    if (capacity >= 10) {
      plan.chunks = {3};
      plan.decodeSteps = 2;
    }
  }
  for (int64_t prompt : prompts) {
    EquivalencePlan& plan = runs.emplace_back(emptyPlan(like));
    plan.batch = 1;
    plan.prompt = prompt;
    if (prompt <= (capacity - 1) / 2) {
      plan.chunks = {prompt};
      plan.decodeSteps = 1;
    }
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const EquivalencePlan& a, const EquivalencePlan& b) {
                     return a.batch * a.totalTokens() < b.batch * b.totalTokens();
                   });
  return runs;
}

} // namespace kvopt::driver
