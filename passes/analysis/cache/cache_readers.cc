// What reads the rows of a cache after its update: attention, outputs, and readers of the extents.
#include "ir/movement.h"
#include "passes/analysis/cache/cache_trace.h"
#include "passes/analysis/movement/data_movement.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

/// Whether extents that `shape` reads serve but to direct `movers`, which are done for when nobody
/// needs what they move.
bool servesOnly(const Node& shape, const llvm::DenseSet<const Node*>& movers) {
  constexpr size_t mostValues = 256;
  llvm::SmallVector<const Value*, 16> reached{&shape.result()};
  llvm::DenseSet<const Value*> seen{&shape.result()};
  for (size_t i = 0; i < reached.size(); ++i) {
    if (reached[i]->isGraphOutput() || i >= mostValues)
      return false;
    for (const Use& use : reached[i]->uses()) {
      const Node& reader = use.user();
      if (movers.count(&reader) || reader.isUnused())
        continue;
      if (&reader.graph() != &shape.graph())
        return false;
      for (const Value& result : reader.results())
        if (seen.insert(&result).second)
          reached.push_back(&result);
    }
  }
  return true;
}

} // namespace

void CacheTracer::collect(Readers& readers, Value& updated, const AxisMap& map) {
  llvm::SmallVector<Readers::Output, 8> pending{{&updated, map, false}};
  while (!pending.empty()) {
    Readers::Output current = pending.pop_back_val();
    if (current.value->isGraphOutput())
      readers.outputs.push_back(current);
    for (const Use& use : current.value->uses()) {
      Node& reader = use.user();
      if (reader.isUnused())
        continue;
      if (reader.op() == "Shape") {
        readers.shapeReaders.push_back(&reader);
        continue;
      }
      bool isHere = &reader.graph() == &updated.graph();
      if (isHere && reader.op() == OpName("ai.kvopt::Sdpa") &&
          (use.operandIndex() == 1 || use.operandIndex() == 2)) {
        if (!readers.attention)
          readers.attention = &reader;
        else if (readers.attention != &reader)
          readers.otherAttention = &reader;
        continue;
      }
      if (!isHere || !onlyMovesData(reader) || !isMoved(use)) {
        readers.escape = &reader;
        return;
      }
      readers.movers.push_back(&reader);
      std::optional<AxisMap> next;
      if (current.map)
        next = mapAfter(reader, *current.map);
      for (Value& result : reader.results()) {
        auto range = slicedRange(result);
        bool window = range && current.map && current.map->sequenceAxis() == range->axis;
        std::optional<AxisMap> windowMap;
        if (window)
          windowMap = current.map;
        pending.push_back({&result, window ? windowMap : next, current.windowed || window});
      }
    }
  }
}

Node* CacheTracer::shapeReader(const SiteCache& key, const SiteCache& value) const {
  llvm::DenseSet<const Node*> movers;
  for (const SiteCache* cache : {&key, &value})
    if (auto found = readers.find(cache->writer); found != readers.end())
      movers.insert(found->second.movers.begin(), found->second.movers.end());
  for (const SiteCache* cache : {&key, &value})
    if (auto found = readers.find(cache->writer); found != readers.end())
      for (Node* reader : found->second.shapeReaders)
        if (&reader->graph() != &cache->writer->graph() || !servesOnly(*reader, movers))
          return reader;
  return nullptr;
}

const CacheTracer::Readers& CacheTracer::readersOf(Value& updated, const AxisMap& map) {
  auto [entry, isNew] = readers.try_emplace(updated.producer());
  if (isNew)
    collect(entry->second, updated, map);
  return entry->second;
}

} // namespace kvopt::analysis
