// Pairs of inputs and outputs that are one cache.
#include "passes/analysis/cache/driven_caches.h"

#include "ir/shapes/shape_rules.h"
#include "passes/analysis/cache/cache_origins.h"
#include "passes/analysis/cache/state_pairs.h"
#include "passes/analysis/movement/uniform_value.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Whether the node overwrites rows of a cache with fixed extents.
bool isScatter(const Node& update) {
  return update.op() == "Where" || update.op() == "ScatterND" || update.op() == "ScatterElements" ||
         update.op() == "TensorScatter";
}

/// Description of the cache of an input and the output that comes from it; nullopt if they are not
/// a cache.
std::optional<ManifestCache> describePair(const Value& past, const Value& present,
                                          const Node& update) {
  const TensorType& before = past.type();
  const TensorType& after = present.type();
  if (!before.hasRank() || !after.hasRank() || before.rank() != after.rank() ||
      before.elementType() != after.elementType())
    return std::nullopt;
  llvm::SmallVector<unsigned, 2> longer;
  bool anySymbol = false;
  std::optional<unsigned> open;
  for (unsigned axis = 0; axis < before.rank(); ++axis) {
    const Dim& from = before.shape()[axis];
    const Dim& to = after.shape()[axis];
    if (!from.value()) {
      anySymbol |= axis != 0;
      if (axis != 0 && !open)
        open = axis;
    }
    // A width that only one of the two declares is not growth, and neither is an extent that shape
    // inference lost.
    if (from.isKnownEqual(to) || (from.value() ? isOpenExtent(to) : to.value().has_value()))
      continue;
    longer.push_back(axis);
  }
  ManifestCache cache;
  cache.past = past.name().str();
  cache.present = present.name().str();
  cache.dtype = before.elementType();
  if (longer.size() == 1) {
    cache.sequenceAxis = longer.front();
  } else if (longer.empty() && (isScatter(update) || !anySymbol)) {
    cache.sequenceAxis = open.value_or(before.rank() == 4 ? 2 : 1);
    if (!isScatter(update))
      cache.storage = StateCache();
    else if (wrapsAround(update, before.dim(cache.sequenceAxis)))
      cache.storage = RingCache();
    else
      cache.storage = StaticCache();
  } else {
    return std::nullopt;
  }
  cache.shape = manifestShape(before, &present, static_cast<unsigned>(cache.sequenceAxis));
  return cache;
}

/// The axes of a state are equivalent except for the batch, so the last one represents its rows.
ManifestCache describeState(const StatePair& pair) {
  const TensorType& type = pair.past->type();
  ManifestCache cache;
  cache.role = CacheRole::State;
  cache.storage = StateCache();
  cache.past = pair.past->name().str();
  cache.present = pair.present->name().str();
  cache.dtype = type.elementType();
  unsigned axis = type.rank() - 1;
  if (!type.shape()[axis].value() && axis > 0)
    --axis;
  cache.sequenceAxis = axis;
  cache.shape = manifestShape(type, pair.present, axis);
  return cache;
}

} // namespace

bool wrapsAround(const Node& update, const Dim& rows) {
  if (update.is("TensorScatter"))
    return update.stringAttr("mode", "linear") == "circular";
  if (!isScatter(update) || !rows.value())
    return false;
  constexpr size_t mostValues = 128;
  llvm::SmallVector<const Value*, 16> pending = {update.operand(1)};
  for (size_t i = 0; i < pending.size() && i < mostValues; ++i) {
    const Node* producer = pending[i] ? pending[i]->producer() : nullptr;
    if (!producer)
      continue;
    if (producer->is("Mod") && producer->operand(1) &&
        uniformValue(*producer->operand(1)) == static_cast<double>(*rows.value()))
      return true;
    if (!producer->is("Shape"))
      for (const Use& use : producer->operands())
        pending.push_back(use.value());
  }
  return false;
}

std::vector<ManifestExtent> manifestShape(const TensorType& past, const Value* present,
                                          unsigned sequenceAxis) {
  std::vector<ManifestExtent> shape;
  for (unsigned axis = 0; axis < past.rank(); ++axis) {
    std::optional<int64_t> fixed = past.shape()[axis].value();
    if (!fixed && present && axis != sequenceAxis)
      fixed = present->type().dim(axis).value();
    if (fixed)
      shape.emplace_back(*fixed);
    else
      shape.emplace_back(past.shape()[axis].str());
  }
  return shape;
}

std::vector<ManifestCache> cachesByDataFlow(const Graph& graph,
                                            const llvm::DenseSet<const Value*>& known,
                                            const llvm::DenseSet<const Value*>& knownOutputs) {
  CacheOrigins origins(graph);
  // An input that is returned twice, or an output of several inputs, is not a cache.
  llvm::DenseMap<const Value*, const Value*> outputOf;
  for (const Value* output : graph.outputs()) {
    const CacheOrigin* origin = origins.find(*output);
    if (!origin || !origin->input || !origin->update)
      continue;
    auto [entry, isNew] = outputOf.try_emplace(origin->input, output);
    if (!isNew)
      entry->second = nullptr;
  }
  std::vector<ManifestCache> caches;
  llvm::DenseSet<const Value*> inputs = known;
  llvm::DenseSet<const Value*> outputs = knownOutputs;
  for (const auto& input : graph.inputs()) {
    const Value* output = outputOf.lookup(input.get());
    if (!output || known.count(input.get()) || outputs.count(output))
      continue;
    auto cache = describePair(*input, *output, *origins.find(*output)->update);
    // For states, distance matters instead of uniqueness.
    if (!cache || cache->update() == CacheUpdate::State)
      continue;
    caches.push_back(std::move(*cache));
    inputs.insert(input.get());
    outputs.insert(output);
  }
  for (const StatePair& pair : statesByDataFlow(graph, inputs, outputs))
    caches.push_back(describeState(pair));
  return caches;
}

} // namespace kvopt::analysis
