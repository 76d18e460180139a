// Parts of caches, identified by their readers.
#include "passes/analysis/cache/part_readers.h"

#include "ir/movement.h"
#include "passes/analysis/movement/data_movement.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Maximum number of values searched between a cache and attention.
constexpr size_t mostPartsSearched = 512;

/// Records the operands of attention that are computed from one part; false if an operand also
/// depends on another part, or if a search reaches its limit.
bool noteReaders(const PartReader& part, llvm::DenseMap<const Use*, Cell>& readers) {
  llvm::SmallVector<const Value*, 16> pending(1, part.result);
  llvm::DenseSet<const Value*> seen;
  while (!pending.empty()) {
    const Value* value = pending.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    if (seen.size() == mostPartsSearched)
      return false;
    for (const Use& use : value->uses()) {
      if (use.user().op() == OpName("ai.kvopt::Sdpa")) {
        const bool isKeysOrValues = use.operandIndex() == 1 || use.operandIndex() == 2;
        if (isKeysOrValues && !(readers.try_emplace(&use, part.cell).first->second == part.cell))
          return false;
      } else if (!use.user().is("Shape")) {
        for (const Value& result : use.user().results())
          pending.push_back(&result);
      }
    }
  }
  return true;
}

} // namespace

bool appendsRows(const Use& use) {
  const Node& node = use.user();
  return use.operandIndex() == 0 && node.results().size() == 1 &&
         (node.is("Concat") || node.is("TensorScatter") || node.is("ScatterElements"));
}

bool keepsPlaces(const Use& use) {
  const std::optional<MovementKind> kind = movementKind(use.user());
  return kind && (*kind == MovementKind::Same || *kind == MovementKind::Convert) && isMoved(use) &&
         use.user().results().size() == 1;
}

llvm::SmallVector<PartReader, 2> partsRead(Node& node) {
  llvm::SmallVector<PartReader, 2> parts;
  for (Value& result : node.results()) {
    if (result.isAbsent())
      continue;
    const std::optional<Movement> movement = movementOf(result);
    if (!movement || !movement->axis())
      return {};
    const unsigned axis = *movement->axis();
    if (movement->is(MovementKind::Gather)) {
      const Value* indices = node.operand(movement->indices);
      const auto index = indices ? indices->knownIntegers() : std::nullopt;
      const std::optional<int64_t> extent = movedOperand(node)->type().dim(axis).value();
      const std::optional<int64_t> first =
          index && index->size() == 1 ? index->front().value() : std::nullopt;
      if (!first || !extent || !indices->type().hasRank() || indices->type().rank() > 1)
        return {};
      const int64_t start = *first < 0 ? *first + *extent : *first;
      parts.push_back({&result, axis, {start, 1}, indices->type().rank() == 1});
      continue;
    }
    const auto range = slicedRange(result);
    const std::optional<int64_t> count =
        range ? result.type().dim(range->axis).value() : std::nullopt;
    if (!count || range->start < 0)
      return {};
    parts.push_back({&result, range->axis, {range->start, *count}});
  }
  return parts;
}

bool isDroppedByReaders(const Value& value, unsigned axis) {
  return !value.isGraphOutput() && llvm::all_of(value.uses(), [&](const Use& use) {
    const Node& reader = use.user();
    if (!isMoved(use) || reader.results().size() != 1)
      return false;
    const std::optional<Movement> movement = movementOf(reader.result());
    return movement && movement->is(MovementKind::RemoveAxes) && movement->axes &&
           llvm::is_contained(*movement->axes, axis);
  });
}

Value* cacheBehind(Value& operand) {
  Value* value = &operand;
  while (Node* producer = value->producer()) {
    if (!movementKind(*producer) && !mayUpdateCache(*producer))
      return nullptr;
    value = producer->operand(0);
    if (!value)
      return nullptr;
  }
  return value->isGraphInput() && !value->graph().parentNode() ? value : nullptr;
}

void addComputedFrom(Value& operand, const CacheOrigins& origins,
                     llvm::SetVector<const Value*>& inputs) {
  llvm::SmallVector<const Value*, 16> pending(1, &operand);
  llvm::DenseSet<const Value*> seen;
  while (!pending.empty() && seen.size() < mostPartsSearched) {
    const Value* value = pending.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    const CacheOrigin* origin = origins.find(*value);
    if (origin && origin->input) {
      inputs.insert(origin->input);
      continue;
    }
    const Node* node = value->producer();
    if (!node || node->is("Shape") || node->op() == OpName("ai.kvopt::Sdpa"))
      continue;
    for (const Use& use : node->operands())
      if (use.value())
        pending.push_back(use.value());
  }
}

bool continuesPart(Value& present, const Value& partInput, const Cell& cell,
                   llvm::ArrayRef<PartReader> readers) {
  Value* value = &present;
  while (value && value != &partInput) {
    for (const PartReader& reader : readers)
      if (reader.result == value)
        return reader.cell == cell;
    Node* producer = value->producer();
    if (!producer || (!movementKind(*producer) && !mayUpdateCache(*producer)))
      return false;
    value = producer->operand(0);
  }
  return value;
}

bool keepOperands(llvm::ArrayRef<PartReader> parts) {
  llvm::DenseMap<const Use*, Cell> readers;
  return llvm::all_of(parts, [&](const PartReader& part) { return noteReaders(part, readers); });
}

Value* continuationOf(Value& input, const CacheOrigins& origins) {
  const Graph& graph = input.graph();
  if (!origins.find(input))
    return nullptr;
  Value* found = nullptr;
  llvm::SmallVector<Value*, 16> pending(1, &input);
  llvm::DenseSet<const Value*> seen(pending.begin(), pending.end());
  while (!pending.empty()) {
    Value* value = pending.pop_back_val();
    if (const auto slots = llvm::count(graph.outputs(), value); slots != 0) {
      if (found || slots != 1 || !origins.find(*value)->update)
        return nullptr;
      found = value;
    }
    for (const Use& use : value->uses())
      for (Value& result : use.user().results())
        if (const CacheOrigin* origin = origins.find(result);
            origin && origin->input == &input && seen.insert(&result).second)
          pending.push_back(&result);
  }
  return found;
}

} // namespace kvopt::analysis
