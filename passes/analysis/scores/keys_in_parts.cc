// Scores that are joined before one softmax.
#include "passes/analysis/scores/keys_in_parts.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "passes/analysis/movement/data_movement.h"
#include "passes/analysis/scores/quantized_products.h"
#include "passes/pattern/explain.h"
#include "support/format.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

/// Maximum number of nodes between a softmax and the products of its scores.
constexpr size_t mostBefore = 48;

/// Walks back from `start` through elementwise operators and movements, to the first node for which
/// `isGoal` holds; null if there is none.
const Node* findBefore(const Value& start, llvm::function_ref<bool(const Node&)> isGoal) {
  llvm::SmallVector<const Value*, 16> pending{&start};
  llvm::DenseSet<const Value*> seen{&start};
  for (size_t i = 0; i < pending.size() && i < mostBefore; ++i) {
    const Node* node = pending[i]->producer();
    if (!node)
      continue;
    if (isGoal(*node))
      return node;
    if (!isElementwise(*node) && !onlyMovesData(*node))
      continue;
    for (const Use& use : node->operands())
      if (use.value() && seen.insert(use.value()).second)
        pending.push_back(use.value());
  }
  return nullptr;
}

bool isScoreProduct(const Node& node) {
  const Value* second = secondFactor(node);
  return second && !second->constant() && !node.operand(0)->constant();
}

/// Number of operands of a Concat that are scores.
size_t joinedScores(const Node& concat) {
  return static_cast<size_t>(llvm::count_if(concat.operands(), [](const Use& part) {
    return part.value() && findBefore(*part.value(), isScoreProduct);
  }));
}

/// Whether the node is a Concat along the keys.
bool joinsKeys(const Node& node) {
  if (movementKind(node) != MovementKind::Concat || !node.result().type().hasRank())
    return false;
  const std::optional<unsigned> axis = movementOf(node.result())->axis();
  return axis && *axis + 1 == node.result().type().rank();
}

} // namespace

std::optional<MatchFailure> keysInParts(const Node& softmax) {
  const Node* join = findBefore(*softmax.operand(0), [](const Node& node) {
    return joinsKeys(node) && joinedScores(node) > 1;
  });
  if (!join)
    return std::nullopt;
  return MatchFailure{
      ReasonCode::KeysInParts, labelOf(*join), "one product with all keys",
      formatted("scores of {} sets of keys, joined before one softmax", joinedScores(*join)), ""};
}

} // namespace kvopt::analysis
