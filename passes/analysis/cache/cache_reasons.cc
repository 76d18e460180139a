// Failures of caches.
#include "passes/analysis/cache/cache_reasons.h"

#include "ir/movement.h"
#include "passes/analysis/movement/data_movement.h"
#include "passes/pattern/explain.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

/// The axis of a node's moved operand whose entries a computed list selects.
std::optional<unsigned> pickedAxis(const Node& node) {
  if (movementKind(node) != MovementKind::Gather)
    return std::nullopt;
  const Movement movement = *movementOf(node.result());
  const Value* indices = node.operand(movement.indices);
  bool isList =
      indices && !indices->constant() && indices->type().hasRank() && indices->type().rank() == 1;
  return isList ? movement.axis() : std::nullopt;
}

/// The value that holds the row indices: an input, if they come from one.
const Value& indexSource(const Value& indices) {
  constexpr unsigned mostSteps = 4;
  const Value* value = &indices;
  for (unsigned step = 0; step < mostSteps; ++step) {
    const Node* node = value->producer();
    if (!node || !onlyMovesData(*node))
      break;
    value = movedOperand(*node);
  }
  return *value;
}

} // namespace

bool isBatchReorder(const Node& node, const AxisMap& after) {
  std::optional<unsigned> axis = pickedAxis(node);
  return axis && *axis < after.rank() &&
         llvm::all_of(after.axis(*axis), [](const AxisPart& part) { return part.role == 'B'; });
}

bool isBatchReorder(const Node& node) {
  if (movementKind(node) != MovementKind::PointGather)
    return pickedAxis(node) == 0u;
  // past[beams] is exported as a GatherND, too.
  const Movement movement = *movementOf(node.result());
  const Value* indices = node.operand(movement.indices);
  return movement.axis() == 0u && !indices->constant() && indices->type().rank() == 2;
}

MatchFailure reorderedCache(const Node& gather) {
  return {ReasonCode::CacheReordered, labelOf(gather), "batch rows in their original order",
          "rows of '" + movedOperand(gather)->name().str() + "' picked by '" +
              indexSource(*gather.operand(movementOf(gather.result())->indices)).name().str() + "'",
          ""};
}

MatchFailure transformedCache(const Value& read, const Node& update) {
  const Node* last = read.producer();
  return {ReasonCode::CacheTransformed, last ? labelOf(*last) : read.name().str(),
          "keys and values as stored in the cache",
          (last ? last->op().str() : std::string("a value")) + " of what '" + labelOf(update) +
              "' joined",
          ""};
}

MatchFailure stackedCache(const Value& past) {
  return {ReasonCode::CacheStacked, past.name().str(),
          "a separate input for each layer's keys and for its values",
          "one input " + past.type().str() + " that holds several caches", ""};
}

unsigned stackedAxes(const AxisMap& map) {
  unsigned count = 0;
  for (unsigned axis = 0; axis < map.rank(); ++axis)
    count += static_cast<unsigned>(
        llvm::count_if(map.axis(axis), [](const AxisPart& part) { return part.role == '*'; }));
  return count;
}

std::optional<MatchFailure> delayedCache(const Value& keys) {
  constexpr unsigned mostSteps = 16;
  const Value* value = &keys;
  for (unsigned step = 0; step < mostSteps && value->producer(); ++step) {
    const Node& node = *value->producer();
    if (!onlyMovesData(node))
      break;
    value = movedOperand(node);
  }
  const Node* joined = value->producer();
  if (!joined || !joined->op().isOnnx() || !joined->is("Concat") || value->isGraphOutput())
    return std::nullopt;
  for (const Use& part : joined->operands()) {
    if (!part.value() || !isModelInput(*part.value()))
      continue;
    for (const Use& use : part.value()->uses()) {
      const Node& other = use.user();
      if (&other == joined || !other.op().isOnnx() || !other.is("Concat") ||
          use.operandIndex() != 0 || !other.result().isGraphOutput())
        continue;
      return MatchFailure{
          ReasonCode::CacheTransformed, labelOf(*joined),
          "attention over the present, '" + other.result().name().str() + "'",
          "a Concat of '" + part.value()->name().str() + "' with other rows than this step's", ""};
    }
  }
  return std::nullopt;
}

} // namespace kvopt::analysis
