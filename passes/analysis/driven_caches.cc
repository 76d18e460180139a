// Pairs of inputs and outputs that are one cache.
#include "passes/analysis/driven_caches.h"

#include "passes/analysis/cache_origins.h"

namespace kvopt {
namespace {

/// Whether the node writes new rows over some of a cache of fixed extents.
bool isScatter(const Node& update) {
  return update.op() == "Where" || update.op() == "ScatterND" || update.op() == "ScatterElements" ||
         update.op() == "TensorScatter";
}

/// What the output says about the input that it comes from; nullopt if they are no cache.
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
    // A width that only one of the two declares is no growth.
    if (from.isKnownEqual(to) || (!from.value() && to.value()))
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
    cache.policy = isScatter(update) ? CachePolicy::Static : CachePolicy::State;
    cache.sequenceAxis = open.value_or(before.rank() == 4 ? 2 : 1);
  } else {
    return std::nullopt;
  }
  cache.shape = manifestShape(before, &present, static_cast<unsigned>(cache.sequenceAxis));
  return cache;
}

} // namespace

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
                                            const llvm::DenseSet<const Value*>& known) {
  CacheOrigins origins(graph);
  // An input that comes out twice, or an output of several, is no cache.
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
  for (const auto& input : graph.inputs()) {
    const Value* output = outputOf.lookup(input.get());
    if (!output || known.count(input.get()))
      continue;
    if (auto cache = describePair(*input, *output, *origins.find(*output)->update))
      caches.push_back(std::move(*cache));
  }
  return caches;
}

} // namespace kvopt
