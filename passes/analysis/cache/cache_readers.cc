// Follows rows forward from their update.
#include "passes/analysis/cache/cache_readers.h"

#include "ir/movement.h"
#include "passes/analysis/movement/data_movement.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Whether only `movers` use the extents that `shape` reads. They are removed if their results are
/// unused.
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

CacheReaders readersOfRows(Value& updated, const AxisMap& map) {
  CacheReaders readers;
  readers.graph = &updated.graph();
  llvm::SmallVector<CacheReaders::Output, 8> pending{{&updated, map, std::nullopt}};
  while (!pending.empty()) {
    CacheReaders::Output current = pending.pop_back_val();
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
        readers.attentions.insert(&reader);
        continue;
      }
      if (!isHere || !onlyMovesData(reader) || !isMoved(use)) {
        readers.escape = &reader;
        return readers;
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
        std::optional<int64_t> lastRows = current.lastRows;
        if (window)
          lastRows = !lastRows && range->toEnd ? std::max<int64_t>(0, -range->start) : 0;
        pending.push_back({&result, window ? windowMap : next, lastRows});
      }
    }
  }
  return readers;
}

Node* foreignShapeReader(llvm::ArrayRef<const CacheReaders*> updates) {
  llvm::DenseSet<const Node*> movers;
  for (const CacheReaders* update : updates)
    movers.insert(update->movers.begin(), update->movers.end());
  for (const CacheReaders* update : updates)
    for (Node* reader : update->shapeReaders)
      if (&reader->graph() != update->graph || !servesOnly(*reader, movers))
        return reader;
  return nullptr;
}

} // namespace kvopt::analysis
