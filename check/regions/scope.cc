// The steps of the scope and what excludes them.
#include "check/regions/scope.h"

#include "check/alignment/selected_tables.h"
#include "check/regions/size_argument.h"
#include "ir/manifest/documented_inputs.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <set>

namespace kvopt::check {
namespace {

/// Sizes that a model fixes; 0 if it does not.
struct FixedSizes {
  int64_t batch = 0;
  int64_t tokens = 0;
  std::optional<int64_t> past;
};

FixedSizes fixedSizesOf(const DrivenModel& side) {
  FixedSizes fixed;
  for (const auto& input : side.model.graph().inputs()) {
    const ir::DocumentedInput* known = ir::documentedInput(*input);
    const ir::TensorType& type = input->type();
    // Positions and masks may have one row for all rows of a batch.
    if (!known || !type.hasRank() ||
        (known->feed != ir::InputFeed::Tokens && known->feed != ir::InputFeed::Any))
      continue;
    for (unsigned axis = 0; axis < known->rank; ++axis)
      if (auto extent = type.dim(axis).value()) {
        if (known->axes[axis] == ir::DocumentedExtent::Batch)
          fixed.batch = *extent;
        else if (known->axes[axis] == ir::DocumentedExtent::NewTokens)
          fixed.tokens = *extent;
      }
  }
  for (const ir::ManifestCache& cache : side.manifest.caches)
    if (cache.update() == ir::CacheUpdate::Grows && !cache.isOneBuffer())
      if (auto rows = cache.fixedRows())
        fixed.past = *rows;
  return fixed;
}

/// Numbers of earlier rows around which behavior may change.
std::set<int64_t> edgesOf(const ir::Manifest& manifest) {
  std::set<int64_t> edges;
  auto around = [&](int64_t at) {
    for (int64_t past : {at - 2, at - 1, at, at + 1})
      if (past > 0)
        edges.insert(past);
  };
  for (const ir::ManifestCache& cache : manifest.caches) {
    if (cache.window > 0)
      around(cache.window);
    if (cache.update() == ir::CacheUpdate::Ring)
      if (auto rows = cache.fixedRows()) {
        around(*rows);
        edges.insert(2 * *rows - 1);
        edges.insert(2 * *rows + 1); // every slot is written twice
      }
  }
  if (manifest.blockSize > 0) {
    around(manifest.blockSize);
    around(2 * manifest.blockSize);
  }
  return edges;
}

/// Adds steps around each constant with which a model compares integers: a number of earlier
/// tokens, of new ones, or of rows.
template <class Add>
void addComparedSizes(const DrivenModel& before, const DrivenModel& after, const Add& add,
                      std::set<int64_t>& covered) {
  constexpr int64_t mostPast = 5000, mostTokens = 40, mostBatch = 16;
  constexpr size_t mostConstants = 12;
  std::set<int64_t> constants = comparedConstants(before.model);
  constants.merge(comparedConstants(after.model));
  size_t added = 0;
  for (int64_t constant : constants) {
    if (constant > mostPast || ++added > mostConstants)
      break;
    for (int64_t past : {constant - 2, constant - 1, constant, constant + 1})
      add(1, past, 1);
    add(1, constant - 1, 3);
    if (constant > mostTokens)
      continue;
    for (int64_t tokens : {constant - 1, constant, constant + 1}) {
      add(1, 0, tokens);
      add(1, 2, tokens);
    }
    if (constant <= mostBatch)
      for (int64_t batch : {constant, constant + 1})
        add(batch, 2, 1);
    covered.insert(constant);
  }
}

/// Adds, for small rings, three rounds of earlier tokens and two of new ones, so that each slot is
/// seen a period apart.
template <class Add> void addRounds(const ir::Manifest& manifest, const Add& add) {
  constexpr int64_t mostSlots = 6;
  std::set<int64_t> rings;
  for (const ir::ManifestCache& cache : manifest.caches)
    if (cache.update() == ir::CacheUpdate::Ring)
      if (const auto rows = cache.fixedRows(); rows && *rows <= mostSlots)
        rings.insert(*rows);
  for (int64_t slots : rings) {
    for (int64_t past = 0; past <= 3 * slots; ++past)
      for (int64_t tokens : {1, 2, 3})
        add(1, past, tokens);
    for (int64_t tokens = 1; tokens <= 2 * slots; ++tokens)
      for (int64_t past : {int64_t(0), int64_t(1), slots})
        add(1, past, tokens);
  }
}

/// Adds steps around the edges of blocks in which several batch rows have blocks of one pool.
template <class Add> void addSharedPools(const ir::Manifest& manifest, const Add& add) {
  if (!manifest.hasPools() || manifest.blockSize <= 0)
    return;
  const int64_t size = manifest.blockSize;
  add(2, 0, size + 1);
  add(2, size - 1, 2);
  add(2, 2 * size, 1);
  add(3, size, 2);
}

/// Adds all numbers of earlier tokens up to the limit of both models, and the largest steps.
template <class Add>
void addLimit(const DrivenModel& before, const DrivenModel& after, const Add& add) {
  const std::optional<int64_t> limit = lengthLimit(before, after);
  if (!limit)
    return;
  for (int64_t past = 0; past < *limit; ++past)
    add(1, past, 1);
  for (int64_t past : {0, 1, 2})
    for (int64_t tokens : {*limit - past - 1, *limit - past})
      if (tokens > 0)
        add(1, past, tokens);
}

/// Adds steps that read rows in which tables of both models differ.
template <class Add>
void addDifferingRows(const DrivenModel& before, const DrivenModel& after, const Add& add) {
  constexpr size_t mostRows = 2, mostTables = 4;
  constexpr int64_t mostPast = 2000;
  size_t added = 0;
  for (const OtherContents& tables : tablesOfOtherContents(before.model, after.model)) {
    const auto different = rowDifferences(tables, 0);
    if (!different || different->rows.empty() || ++added > mostTables)
      continue;
    for (int64_t row : llvm::ArrayRef<int64_t>(different->rows).take_front(mostRows))
      if (tables.after.isByTokens)
        add({1, 1, 2, 0, false, 0, row});
      else if (row <= mostPast)
        add({1, std::max<int64_t>(row - 1, 0), 2});
  }
}

/// The limit of a manifest that excludes a step; empty if none does.
std::string limitOn(const ir::Manifest& manifest, const Step& step) {
  if (manifest.chunkBatch && step.past > 0 && step.tokens > 1 && step.batch > *manifest.chunkBatch)
    return "its limit of " + std::to_string(*manifest.chunkBatch) +
           " batch rows in steps of several tokens after a past";
  if (manifest.stepLimit && step.tokens > *manifest.stepLimit)
    return "its limit of " + std::to_string(*manifest.stepLimit) + " tokens per step";
  if (manifest.capacityValue && step.total() > *manifest.capacityValue)
    return "its capacity of " + std::to_string(*manifest.capacityValue) + " tokens";
  if (step.padding > 0 && !manifest.unpadded.empty())
    return "its masks without padding";
  if (step.padding > 0 && manifest.padsRight && (!step.padsRight || step.past > 0))
    return "padding after the tokens of a prompt only";
  return "";
}

/// Whether the caches of a model have room for all rows of a step.
bool hasRoom(const ir::Manifest& manifest, const Step& step) {
  return llvm::all_of(manifest.caches, [&](const ir::ManifestCache& cache) {
    const auto rows = cache.fixedRows();
    switch (cache.update()) {
    case ir::CacheUpdate::Grows:
      return !(std::holds_alternative<ir::BufferCache>(cache.storage) || cache.isPool()) || !rows ||
             step.total() <= *rows;
    case ir::CacheUpdate::Blocks:
      return manifest.blockSize <= 0 ||
             step.total() <=
                 std::min(manifest.blockSize * static_cast<int64_t>(cache.blocks().size()),
                          manifest.capacityValue.value_or(INT64_MAX)); // the last may be shorter
    default:
      return true;
    }
  });
}

} // namespace

std::optional<int64_t> lengthLimit(const DrivenModel& before, const DrivenModel& after) {
  constexpr int64_t mostRows = 64;
  int64_t limit = mostRows + 1;
  for (const DrivenModel* side : {&before, &after}) {
    const ir::Manifest& manifest = side->manifest;
    limit = std::min(limit, manifest.capacityValue.value_or(limit));
    for (const ir::ManifestCache& cache : manifest.caches)
      if (cache.update() == ir::CacheUpdate::Static ||
          (cache.update() == ir::CacheUpdate::Grows &&
           std::holds_alternative<ir::BufferCache>(cache.storage)))
        limit = std::min(limit, cache.fixedRows().value_or(limit));
  }
  return limit > mostRows ? std::nullopt : std::optional(limit);
}

std::vector<Step> scopeOf(const DrivenModel& before, const DrivenModel& after,
                          std::vector<std::string>& leftOut, std::set<int64_t>& covered) {
  std::vector<Step> all;
  auto add = [&](int64_t batch, int64_t past, int64_t tokens, int64_t padding = 0,
                 bool padsRight = false) {
    if (batch < 1 || past < 0 || tokens < 1) // below a small constant
      return;
    Step step{batch, past, tokens, padding, padsRight, 0};
    step.spare = static_cast<int64_t>(all.size() % 3) * 2;
    all.push_back(step);
  };
  for (int64_t past = 0; past <= 4; ++past)
    for (int64_t tokens = 1; tokens <= 4; ++tokens)
      add(1, past, tokens);
  for (auto [past, tokens] : {std::pair<int64_t, int64_t>{0, 2}, {2, 1}, {3, 2}, {0, 4}, {4, 3}})
    add(2, past, tokens);
  for (auto [past, tokens] : {std::pair<int64_t, int64_t>{0, 3}, {3, 1}, {2, 3}})
    add(3, past, tokens);
  for (auto [past, tokens] : {std::pair<int64_t, int64_t>{0, 3}, {0, 4}, {3, 1}, {4, 2}, {4, 1}})
    for (bool padsRight : {false, true})
      for (int64_t padding : {1, 2}) {
        add(2, past, tokens, padding, padsRight);
        add(3, past, tokens, padding, padsRight);
      }
  std::set<int64_t> edges = edgesOf(after.manifest);
  edges.merge(edgesOf(before.manifest));
  for (int64_t past : edges)
    for (int64_t tokens : {1, 2, 3})
      add(1, past, tokens);
  for (const DrivenModel* side : {&before, &after})
    addSharedPools(side->manifest, add);
  addComparedSizes(before, after, add, covered);
  addLimit(before, after, add);
  for (const DrivenModel* side : {&before, &after})
    addRounds(side->manifest, add);
  addDifferingRows(before, after, [&](const Step& step) { all.push_back(step); });
  const FixedSizes fixed = fixedSizesOf(before), fixedAfter = fixedSizesOf(after);
  const bool hasMask = llvm::any_of(before.model.graph().inputs(), [](const auto& input) {
    return input->name() == "attention_mask";
  });
  const bool hasPast = llvm::any_of(before.manifest.caches, [](const ir::ManifestCache& cache) {
    return cache.update() != ir::CacheUpdate::State && cache.update() != ir::CacheUpdate::ReadOnly;
  });
  std::set<std::string> limits;
  std::vector<Step> kept;
  for (Step step : all) {
    for (const FixedSizes* sizes : {&fixed, &fixedAfter}) {
      if (sizes->batch)
        step.batch = sizes->batch;
      if (sizes->tokens)
        step.tokens = sizes->tokens;
      if (sizes->past)
        step.past = *sizes->past;
    }
    if (!hasPast)
      step.past = 0;
    if (!hasMask || step.padding >= step.total() || step.batch == 1)
      step.padding = 0;
    step.excludedBy = limitOn(after.manifest, step);
    const std::string limit = limitOn(before.manifest, step);
    if (!limit.empty())
      limits.insert("steps that the first model's manifest excludes by " + limit);
    if (limit.empty() && hasRoom(before.manifest, step) && hasRoom(after.manifest, step) &&
        !llvm::is_contained(kept, step))
      kept.push_back(step);
  }
  leftOut.insert(leftOut.end(), limits.begin(), limits.end());
  llvm::stable_sort(
      kept, [](const Step& a, const Step& b) { return a.batch * a.total() < b.batch * b.total(); });
  return kept;
}

} // namespace kvopt::check
