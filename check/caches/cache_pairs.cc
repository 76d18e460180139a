// Pairing of caches by the names of their pasts.
#include "check/caches/cache_pairs.h"

#include "check/caches/sliding_cache.h"
#include "ir/rows/row_code.h"
#include "support/four_bit_row.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {

CachePairs::CachePairs(DrivenModel before, DrivenModel after)
    : original(before), second(after), rounding(after.model) {
  for (const DrivenModel* side : {&original, &second})
    for (const ir::ManifestCache& cache : side->manifest.caches)
      if (check::isSliding(side->model.graph(), cache))
        sliding.insert(&cache);
  pairCaches();
  collectRoundings();
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

/// Whether a symbol of a manifest is that of another axis of the input only.
bool isOfOtherAxis(const std::string& symbol, const ir::TensorType& type, unsigned axis) {
  const ir::Dim named = ir::Dim::symbol(symbol);
  return type.dim(axis) != named && llvm::is_contained(type.shape(), named);
}

/// Whether a manifest gives a cache another shape than the model's input declares. A program that
/// allocates the cache by the manifest then fails. The number of rows may be fixed by the manifest
/// alone, and a static cache has a fixed one. The first two axes of a pool are its blocks and their
/// rows.
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
    const bool isOfRows = static_cast<int64_t>(i) == cache.sequenceAxis;
    if (declared  ? !written || *written != *declared
        : written ? !isOfRows
                  : isOfOtherAxis(std::get<std::string>(cache.shape[i]), input->type(), i) ||
                        (isOfRows && cache.update() == ir::CacheUpdate::Static))
      return true;
  }
  return false;
}

/// Whether the rows of a cache are not known to stay in their slots.
bool mayMoveRows(const ir::ManifestCache& cache) {
  return cache.update() == ir::CacheUpdate::Ring && !cache.isOneBuffer();
}

} // namespace

std::string CachePairs::obstacleOf(const CachePair& pair) const {
  const ir::ManifestCache& cache = *pair.after;
  if (cache.holdsAttendedRows || (!cache.replaces.empty() && pair.content != RowContent::Latent))
    return "its rows have another form than those of the first model's cache";
  if (!pair.before)
    return "the first model has no such cache";
  if (pair.before->isPool() &&
      (pair.before->storage != cache.storage || pair.before->shape != cache.shape ||
       pair.before->permutation != cache.permutation))
    return "the first model's cache is a pool of blocks";
  if (contradicts(second, cache))
    return "the manifest gives it another shape than the model declares";
  if (mayMoveRows(*pair.before) && mayMoveRows(cache) &&
      isSliding(*pair.before) != isSliding(cache))
    return "one model moves its rows, and whether the other one does is not known";
  return "";
}

namespace {

/// The cache of the layer with a role that is kept as `like` is; null if there is none.
const ir::ManifestCache* cacheOf(const ir::Manifest& manifest, const ir::ManifestCache& like,
                                 ir::CacheRole role) {
  const auto found = llvm::find_if(manifest.caches, [&](const ir::ManifestCache& cache) {
    return cache.layer == like.layer && cache.role == role &&
           cache.storage.index() == like.storage.index();
  });
  return found == manifest.caches.end() ? nullptr : &*found;
}

/// The axis along which codes have one scale for a whole row; nullopt if it is not known.
std::optional<unsigned> axisOfScales(const ir::ManifestCache& codes,
                                     const ir::ManifestCache& scales) {
  if (codes.shape.size() != scales.shape.size() || codes.sequenceAxis != scales.sequenceAxis ||
      codes.permutation != scales.permutation)
    return std::nullopt;
  std::optional<unsigned> axis, ofOneNumber;
  for (unsigned i = 0; i < codes.shape.size(); ++i) {
    const bool isOne = scales.shape[i] == ir::ManifestExtent(int64_t(1));
    if (codes.shape[i] != scales.shape[i]) {
      if (!isOne || axis)
        return std::nullopt;
      axis = i;
    } else if (isOne && i != codes.sequenceAxis) {
      ofOneNumber = i;
    }
  }
  return axis ? axis : ofOneNumber;
}

/// Whether a cache has rows of packed codes along its last axis, and is a whole cache.
bool isFourBitRow(const ir::ManifestCache& codes, unsigned axis) {
  return codes.codeColumns > 0 && axis + 1 == codes.shape.size() && !codes.part &&
         codes.shape.back() == ir::ManifestExtent(FourBitRow{codes.codeColumns}.bytes());
}

} // namespace

void CachePairs::pairCodes(CachePair& pair,
                           const llvm::StringMap<const ir::ManifestCache*>& earlier) const {
  const ir::ManifestCache& cache = *pair.after;
  const bool areScales = ir::isScale(cache.role);
  if (!areScales && ir::isFloatingPoint(cache.dtype))
    return;
  // Codes of both models are numbers, which may be rounded alike.
  if (pair.before && pair.before->role == cache.role && pair.before->dtype == cache.dtype &&
      pair.before->codeColumns == cache.codeColumns)
    return;
  const ir::CacheRole roles[] = {ir::CacheRole::Key, ir::CacheRole::Value, ir::CacheRole::Latent};
  const auto role = llvm::find_if(roles, [&](ir::CacheRole each) {
    return each == cache.role || ir::scaleRole(each) == cache.role;
  });
  pair.obstacle = "its rows are codes";
  if (role == std::end(roles))
    return;
  pair.codes = cacheOf(second.manifest, cache, *role);
  const ir::ManifestCache* scales = cacheOf(second.manifest, cache, ir::scaleRole(*role));
  const ir::RowCode* code = pair.codes ? ir::rowCodeOf(pair.codes->dtype) : nullptr;
  const auto axis = code && scales ? axisOfScales(*pair.codes, *scales) : std::nullopt;
  if (!axis || (code->isPacked() && !isFourBitRow(*pair.codes, *axis)))
    return;
  pair.before = earlier.lookup(pair.codes->part ? pair.codes->part->past : pair.codes->past);
  if (!pair.before || !ir::isFloatingPoint(pair.before->dtype) ||
      pair.before->update() == ir::CacheUpdate::Static)
    return;
  pair.obstacle.clear();
  pair.content = areScales ? RowContent::Scales : RowContent::Codes;
  pair.scaleAxis = *axis;
  pair.isPacked = code->isPacked();
  pair.largestCode = code->largest;
}

void CachePairs::collectRoundings() {
  const ir::Graph& graph = second.model.graph();
  bool isOdd = false;
  for (CachePair& pair : cachePairs)
    if (pair.obstacle.empty() && pair.content == RowContent::Codes &&
        pair.after->update() != ir::CacheUpdate::ReadOnly) {
      const ir::Value* present = graph.findValue(pair.after->present);
      isOdd |= !present ||
               !rounding.add(*present, pair.isPacked ? FourBitRow::largestCode : pair.largestCode);
    }
  if (!isOdd && rounding.coverAllCalls())
    return;
  rounding = Roundings(second.model);
  for (CachePair& pair : cachePairs)
    if (pair.obstacle.empty() && pair.codes)
      pair.obstacle = "its rows are codes, and which nodes only round them is not known";
}

void CachePairs::pairCaches() {
  llvm::StringMap<const ir::ManifestCache*> earlier;
  for (const ir::ManifestCache& cache : original.manifest.caches)
    earlier[cache.past] = &cache;
  for (const ir::ManifestCache& cache : second.manifest.caches) {
    CachePair pair;
    pair.after = &cache;
    pair.before = earlier.lookup(cache.part ? cache.part->past : cache.past);
    pairCodes(pair, earlier);
    if (!cache.replaces.empty() && pair.obstacle.empty() && !cache.part &&
        cache.permutation.empty()) {
      pair.content = RowContent::Latent;
      pair.before = earlier.lookup(cache.replaces.front().past);
    }
    if (pair.obstacle.empty())
      pair.obstacle = obstacleOf(pair);
    pair.form = numberOf("pair" + formOf(cache, true) +
                         (pair.codes ? formOf(*pair.codes, true) : std::string()) +
                         (pair.before ? formOf(*pair.before, false) : std::string()));
    cachePairs.push_back(std::move(pair));
  }
  pairReplaced(earlier);
}

/// A latent cache is paired with the first cache that it replaces. Adds pairs with the others.
void CachePairs::pairReplaced(const llvm::StringMap<const ir::ManifestCache*>& earlier) {
  for (size_t i = 0; i < second.manifest.caches.size(); ++i) {
    if (cachePairs[i].content != RowContent::Latent)
      continue;
    for (const ir::ManifestReplacement& other :
         llvm::ArrayRef(cachePairs[i].after->replaces).drop_front()) {
      CachePair pair = cachePairs[i];
      pair.before = earlier.lookup(other.past);
      pair.obstacle = obstacleOf(pair);
      cachePairs.push_back(std::move(pair));
    }
  }
  // Attention reads all of a layer's caches.
  for (CachePair& pair : cachePairs)
    if (pair.content == RowContent::Latent && pair.obstacle.empty())
      for (const CachePair& other : cachePairs)
        if (other.after == pair.after && !other.obstacle.empty())
          pair.obstacle = other.obstacle;
}

const CachePair* CachePairs::replacing(llvm::StringRef past) const {
  const auto found = llvm::find_if(cachePairs, [&](const CachePair& pair) {
    return pair.content == RowContent::Latent && pair.obstacle.empty() && pair.before &&
           pair.before->past == past;
  });
  return found == cachePairs.end() ? nullptr : &*found;
}

void CachePairs::indexCaches(bool isAfter) {
  const DrivenModel& side = isAfter ? second : original;
  llvm::StringMap<CacheInput>& inputs = isAfter ? inputsAfter : inputsBefore;
  for (size_t i = 0; i < side.manifest.caches.size(); ++i) {
    const ir::ManifestCache& cache = side.manifest.caches[i];
    CacheInput input;
    input.cache = &cache;
    input.isAfter = isAfter;
    const bool isLatent = isAfter && cachePairs[i].content == RowContent::Latent;
    input.history = isAfter && !isLatent ? cachePairs[i].before : &cache;
    std::string form = isAfter ? "second" + formOf(cache, true) : "first";
    if (input.history)
      form += formOf(*input.history, false);
    if (isAfter && !cachePairs[i].obstacle.empty()) {
      input.obstacle = cachePairs[i].obstacle;
      input.history = nullptr;
      form += input.obstacle;
    }
    if (isAfter) {
      input.pair = &cachePairs[i];
      if (input.pair->codes)
        form += formOf(*input.pair->codes, true);
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
