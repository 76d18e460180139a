// Default runs, and their adaptation to batch sizes, step lengths and capacities.
#include "driver/verify/plan.h"

#include "ir/manifest/documented_inputs.h"
#include "ir/model.h"
#include "ir/ops/kvopt/cache_operator.h"

#include <algorithm>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

EquivalencePlan run(int64_t batch, Padding padding, int64_t prompt, std::vector<int64_t> chunks,
                    int64_t decodeSteps) {
  EquivalencePlan plan;
  plan.batch = batch;
  plan.padding = padding;
  plan.prompt = prompt;
  plan.chunks = std::move(chunks);
  plan.decodeSteps = decodeSteps;
  return plan;
}

} // namespace

void VerificationPlan::setTolerance(Tolerance tolerance) {
  for (EquivalencePlan& plan : runs)
    plan.tolerance = tolerance;
}

void VerificationPlan::setRecipes(const std::vector<InputRecipe>& recipes) {
  for (EquivalencePlan& plan : runs)
    plan.recipes = recipes;
}

int64_t VerificationPlan::tokens() const {
  int64_t most = 0;
  for (const EquivalencePlan& plan : runs)
    most = std::max(most, plan.pastRows + plan.totalTokens());
  return most;
}

EquivalencePlan quickVerification() { return run(3, Padding::Left, 17, {3}, 1); }

VerificationPlan fullVerification() {
  VerificationPlan plan({run(3, Padding::None, 33, {16, 1, 7}, 12),
                         run(3, Padding::Left, 33, {7}, 4), run(3, Padding::Right, 33, {7}, 4),
                         run(3, Padding::None, 5, {3}, 4), run(3, Padding::Left, 5, {}, 3),
                         run(3, Padding::Right, 5, {}, 3), run(1, Padding::None, 1, {}, 6),
                         run(1, Padding::None, 5, {7}, 2)});
  plan.visitsLandmarks = true;
  return plan;
}

namespace {

constexpr int64_t mostProducts = int64_t{1} << 40; // products of a weight and a token

} // namespace

int64_t weightCount(const Graph& graph) {
  int64_t weights = 1;
  for (const std::unique_ptr<Value>& initializer : graph.initializers())
    if (initializer->initializer())
      weights += std::min(initializer->initializer()->elementCount(), mostProducts - weights);
  return weights;
}

int64_t affordableTokens(const Graph& graph) { return mostProducts / weightCount(graph); }

EquivalencePlan deepRun(const EquivalencePlan& like, int64_t tokens) {
  constexpr int64_t chunkTokens = 256;
  constexpr int64_t decodeSteps = 4;
  EquivalencePlan plan = like;
  plan.batch = 1;
  plan.padding = Padding::None;
  const int64_t before = std::max<int64_t>(1, tokens - decodeSteps);
  plan.prompt = std::min(before, chunkTokens);
  plan.chunks.clear();
  for (int64_t left = before - plan.prompt; left > 0; left -= plan.chunks.back())
    plan.chunks.push_back(std::min(left, chunkTokens));
  plan.decodeSteps = std::min(decodeSteps, tokens - before);
  return plan;
}

const char* paddingName(Padding padding) {
  return padding == Padding::Left ? "left" : padding == Padding::Right ? "right" : "none";
}

bool limitsByMetadata(const Graph& graph, const Manifest& manifest) {
  if (!manifest.capacityValue)
    return false;
  bool isOfGraph = false;
  for (const ManifestCache& cache : manifest.caches) {
    if (!cache.blocks().empty() || cache.isPool()) {
      isOfGraph = true;
      continue;
    }
    const Value* input = cache.isOneBuffer() ? graph.findValue(cache.past) : nullptr;
    const auto axis = static_cast<unsigned>(cache.sequenceAxis);
    if (!input || !input->type().hasRank() || axis >= input->type().rank())
      continue;
    const std::optional<int64_t> rows = input->type().dim(axis).value();
    if (!rows)
      return true;
    isOfGraph |= *rows == *manifest.capacityValue;
  }
  return !isOfGraph;
}

namespace {

/// The plan without the last tokens, which exceed the capacity.
EquivalencePlan cut(EquivalencePlan plan, int64_t capacity) {
  int64_t room = std::max<int64_t>(capacity - plan.pastRows, 1);
  const auto take = [&](int64_t tokens) {
    const int64_t taken = std::min(tokens, room);
    room -= taken;
    return taken;
  };
  plan.prompt = take(plan.prompt);
  for (int64_t& chunk : plan.chunks)
    chunk = take(chunk);
  plan.chunks.erase(std::remove(plan.chunks.begin(), plan.chunks.end(), 0), plan.chunks.end());
  plan.decodeSteps = std::min(plan.decodeSteps, room / plan.stepTokens);
  return plan;
}

/// The plan without tokens that exceed the capacity of a cache. Sizes that were not requested are
/// reduced first, to keep steps of each kind.
EquivalencePlan shortened(EquivalencePlan plan, int64_t capacity, RequestedSizes requested) {
  if (plan.pastRows > 0 || plan.totalTokens() <= capacity)
    return cut(std::move(plan), capacity);
  int64_t rest = capacity;
  if (requested.prompt)
    rest -= std::min(plan.prompt, rest);
  if (requested.chunks)
    for (int64_t chunk : plan.chunks)
      rest -= std::min(chunk, rest);
  if (requested.steps)
    rest -= std::min(plan.decodeSteps, rest / plan.stepTokens) * plan.stepTokens;
  if (!requested.prompt) {
    plan.prompt = std::min(plan.prompt, std::max<int64_t>(1, rest / 2));
    rest = std::max<int64_t>(rest - plan.prompt, 0);
  }
  if (!requested.chunks) {
    // Half of the remaining room is for decode steps.
    int64_t restOfChunks = rest / 2;
    for (int64_t& chunk : plan.chunks) {
      chunk = std::min(chunk, restOfChunks);
      restOfChunks -= chunk;
      rest -= chunk;
    }
  }
  if (!requested.steps)
    plan.decodeSteps = std::min(plan.decodeSteps, rest / plan.stepTokens);
  return cut(std::move(plan), capacity);
}

/// Changes steps to the number of tokens that the token ids, or their embeddings, declare.
void fitTokens(const Value& input, bool isEmbedded, EquivalencePlan& plan) {
  const TensorType& type = input.type();
  const bool hasBatch = type.hasRank() && type.rank() == (isEmbedded ? 3 : 2);
  if (!hasBatch && !(type.hasRank() && type.rank() == 1 && !isEmbedded))
    return;
  plan.batch = hasBatch ? type.dim(0).value().value_or(plan.batch) : 1;
  std::optional<int64_t> tokens = type.dim(hasBatch ? 1 : 0).value();
  if (!tokens || *tokens < 1)
    return;
  plan.decodeSteps = std::max<int64_t>(1, plan.totalTokens() / *tokens) - 1;
  if (plan.padded == 0 && *tokens < plan.prompt)
    plan.padded = std::min(plan.prompt, *tokens * (plan.decodeSteps + 1));
  plan.prompt = plan.stepTokens = *tokens;
  plan.chunks.clear();
}

/// Number of rows of growing caches with a fixed extent.
int64_t fixedPastRows(const Manifest& manifest) {
  for (const ManifestCache& cache : manifest.caches)
    if (cache.update() == CacheUpdate::Grows && !cache.isOneBuffer())
      if (const auto fixed = cache.fixedRows())
        return *fixed;
  return 0;
}

/// Whether attention reads the rows that a step overwrites in addition to the new rows.
bool isReadBeforeWritten(const ManifestCache& cache, const Graph& graph) {
  const Value* past = graph.findValue(cache.past);
  return past && llvm::any_of(past->uses(), [](const Use& use) {
           const auto op = CacheOperator::of(use.user());
           return op && op->isRing();
         });
}

/// Limits steps to `most` tokens: splits a longer prompt and longer chunks.
void limitSteps(int64_t most, EquivalencePlan& plan) {
  plan.chunks.insert(plan.chunks.begin(), std::max<int64_t>(plan.prompt - most, 0));
  plan.prompt = std::min(plan.prompt, most);
  std::vector<int64_t> chunks;
  for (int64_t chunk : plan.chunks)
    for (; chunk > 0; chunk -= chunks.back())
      chunks.push_back(std::min(chunk, most));
  plan.chunks = std::move(chunks);
}

} // namespace

void fitFixedPast(const Manifest& manifest, EquivalencePlan& plan) {
  const int64_t rows = fixedPastRows(manifest);
  if (rows <= 0)
    return;
  plan.pastRows = rows;
  plan.chunks.clear();
  plan.decodeSteps = 0;
  plan.padded = 0;
}

void fitTokenInputs(const Graph& graph, const Manifest& manifest, EquivalencePlan& plan) {
  for (const Value* tokens : tokenInputs(graph, manifest.inputs))
    fitTokens(*tokens, false, plan);
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->name() == "inputs_embeds")
      fitTokens(*input, true, plan);
}

int64_t capacityOf(const Manifest& manifest) {
  int64_t capacity = manifest.capacityValue.value_or(INT64_MAX);
  for (const ManifestCache& cache : manifest.caches)
    if (cache.update() == CacheUpdate::Static)
      capacity = std::min(capacity, cache.fixedRows().value_or(INT64_MAX));
  return capacity;
}

EquivalencePlan fittedPlan(EquivalencePlan plan, const Graph& graph, const Manifest& manifest,
                           RequestedSizes requested) {
  fitTokenInputs(graph, manifest, plan);
  if (const int64_t capacity = capacityOf(manifest); capacity != INT64_MAX)
    plan = shortened(std::move(plan), capacity, requested);
  if (manifest.stepLimit)
    limitSteps(*manifest.stepLimit, plan);
  // A step that scatters rows into a ring must not have more tokens than the ring has rows.
  for (const ManifestCache& cache : manifest.caches)
    if (cache.update() == CacheUpdate::Ring && !isReadBeforeWritten(cache, graph))
      if (const auto rows = cache.fixedRows()) {
        plan.prompt = std::min(plan.prompt, std::max<int64_t>(1, *rows));
        for (int64_t& chunk : plan.chunks)
          chunk = std::min(chunk, std::max<int64_t>(1, *rows));
      }
  fitFixedPast(manifest, plan);
  return plan;
}

} // namespace kvopt::driver
