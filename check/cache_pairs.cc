// Pairing of caches by the names of their pasts.
#include "check/cache_pairs.h"

#include "check/sliding_cache.h"

namespace kvopt::check {

CachePairs::CachePairs(DrivenModel before, DrivenModel after) : original(before), second(after) {
  for (const DrivenModel* side : {&original, &second})
    for (const ir::ManifestCache& cache : side->manifest.caches)
      if (check::isSliding(side->model.graph(), cache))
        sliding.insert(&cache);
  pairCaches();
  indexCaches(false);
  indexCaches(true);
  // What a model only reads is the same in both, also if only the first manifest calls it a cache.
  for (const auto& known : inputsBefore)
    if (known.second.cache->update() == ir::CacheUpdate::ReadOnly)
      inputsAfter.try_emplace(known.first(), known.second);
}

std::string CachePairs::formOf(const ir::ManifestCache& cache, bool isAfter) const {
  ir::Manifest only;
  only.caches.push_back(cache);
  ir::ManifestCache& nameless = only.caches.front();
  nameless.layer = 0;
  nameless.past = nameless.present = "";
  nameless.readers.clear();
  if (nameless.part)
    nameless.part->past = nameless.part->present = "";
  if (auto* blocks = std::get_if<ir::BlockCache>(&nameless.storage))
    for (std::string& input : blocks->inputs)
      input.clear();
  const ir::Value* input = isAfter ? nullptr : original.model.graph().findValue(cache.past);
  return only.json() + (input ? input->type().str() : "") + (isSliding(cache) ? " sliding" : "");
}

namespace {

/// Whether a manifest gives a cache another shape than the model's input declares. A program that
/// allocates the cache by the manifest then fails. The number of rows may be fixed by the manifest
/// alone. The first two axes of a pool are its blocks and their rows.
bool contradicts(const DrivenModel& model, const ir::ManifestCache& cache) {
  const ir::Value* input = model.model.graph().findValue(cache.past);
  if (!input || !input->isGraphInput() || !input->type().hasRank() ||
      input->type().rank() != cache.shape.size())
    return false;
  if (cache.isPool() &&
      input->type().dim(1).value().value_or(model.manifest.blockSize) != model.manifest.blockSize)
    return true;
  for (unsigned i = cache.isPool() ? 2 : 0; i < cache.shape.size(); ++i) {
    const std::optional<int64_t> declared = input->type().dim(i).value();
    const auto* written = std::get_if<int64_t>(&cache.shape[i]);
    if (declared ? !written || *written != *declared
                 : written && static_cast<int64_t>(i) != cache.sequenceAxis)
      return true;
  }
  return false;
}

/// Whether the rows of a cache are not known to stay in their slots.
bool mayMoveRows(const ir::ManifestCache& cache) {
  return cache.update() == ir::CacheUpdate::Ring && !cache.isOneBuffer();
}

} // namespace

void CachePairs::pairCaches() {
  llvm::StringMap<const ir::ManifestCache*> earlier;
  for (const ir::ManifestCache& cache : original.manifest.caches)
    earlier[cache.past] = &cache;
  for (const ir::ManifestCache& cache : second.manifest.caches) {
    CachePair pair;
    pair.after = &cache;
    pair.before = earlier.lookup(cache.part ? cache.part->past : cache.past);
    if (ir::isScale(cache.role) || cache.codeColumns != 0 ||
        (!ir::isFloatingPoint(cache.dtype) && pair.before && pair.before->dtype != cache.dtype))
      pair.obstacle = "its rows are codes";
    else if (!cache.replaces.empty() || cache.holdsAttendedRows)
      pair.obstacle = "its rows have another form than those of the first model's cache";
    else if (!pair.before)
      pair.obstacle = "the first model has no such cache";
    else if (pair.before->isPool() &&
             (pair.before->storage != cache.storage || pair.before->shape != cache.shape ||
              pair.before->permutation != cache.permutation))
      pair.obstacle = "the first model's cache is a pool of blocks";
    else if (contradicts(second, cache))
      pair.obstacle = "the manifest gives it another shape than the model declares";
    else if (mayMoveRows(*pair.before) && mayMoveRows(cache) &&
             isSliding(*pair.before) != isSliding(cache))
      pair.obstacle = "one model moves its rows, and whether the other one does is not known";
    pair.form = numberOf("pair" + formOf(cache, true) +
                         (pair.before ? formOf(*pair.before, false) : std::string()));
    cachePairs.push_back(std::move(pair));
  }
}

void CachePairs::indexCaches(bool isAfter) {
  const DrivenModel& side = isAfter ? second : original;
  llvm::StringMap<CacheInput>& inputs = isAfter ? inputsAfter : inputsBefore;
  for (size_t i = 0; i < side.manifest.caches.size(); ++i) {
    const ir::ManifestCache& cache = side.manifest.caches[i];
    CacheInput input;
    input.cache = &cache;
    input.isAfter = isAfter;
    input.history = isAfter ? cachePairs[i].before : &cache;
    std::string form = isAfter ? "second" + formOf(cache, true) : "first";
    if (input.history)
      form += formOf(*input.history, false);
    if (isAfter && !cachePairs[i].obstacle.empty()) {
      input.obstacle = cachePairs[i].obstacle;
      input.history = nullptr;
      form += input.obstacle;
    }
    const auto names =
        cache.blocks().empty() ? llvm::ArrayRef<std::string>(cache.past) : cache.blocks();
    for (const std::string& name : names) {
      input.name = name;
      input.form = numberOf(form + std::to_string(input.block));
      inputs.try_emplace(name, input);
      ++input.block;
    }
  }
}

const CacheInput* CachePairs::input(bool isAfter, llvm::StringRef name) const {
  const llvm::StringMap<CacheInput>& inputs = isAfter ? inputsAfter : inputsBefore;
  const auto known = inputs.find(name);
  return known == inputs.end() ? nullptr : &known->second;
}

} // namespace kvopt::check
