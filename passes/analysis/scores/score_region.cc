// Bounded walks from a matrix product back to a softmax, and from there to the scores.
#include "passes/analysis/scores/score_region.h"

#include "ir/elementwise.h"
#include "ir/movement.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr unsigned maxVisited = 64;

using NodeSet = llvm::SmallPtrSet<Node*, 16>;
using NodeList = llvm::SmallVector<Node*, 16>;

bool isInner(const Node& node) { return isElementwise(node) || isReshaping(node); }

/// Calls `visit` for the operands from whose elements the node's result is computed.
template <class Visit> void forEachSource(const Node& node, Visit visit) {
  unsigned count = isElementwise(node) ? node.operands().size() : 1;
  for (unsigned i = 0; i < count; ++i)
    if (Value* operand = node.operand(i))
      if (Node* producer = operand->producer(); producer && &producer->graph() == &node.graph())
        visit(*producer);
}

/// The inner nodes among the ancestors of `from`, and the nodes of operator `end` where they begin.
struct Ancestors {
  NodeList inner, ends;
};

Ancestors ancestorsOf(const Value& from, OpName end) {
  Ancestors found;
  NodeSet seen;
  NodeList pending;
  auto add = [&](Node& node) {
    if (seen.size() < maxVisited && seen.insert(&node).second)
      pending.push_back(&node);
  };
  if (from.producer())
    add(*from.producer());
  while (!pending.empty()) {
    Node* node = pending.pop_back_val();
    if (node->is(end)) {
      found.ends.push_back(node);
    } else if (isInner(*node)) {
      found.inner.push_back(node);
      forEachSource(*node, add);
    }
  }
  return found;
}

/// Those of `nodes` that depend on `start`, in execution order.
NodeList dependents(NodeList nodes, Node& start) {
  llvm::sort(nodes, [](const Node* a, const Node* b) { return a->comesBefore(*b); });
  NodeSet dependent{&start};
  NodeList list;
  for (Node* node : nodes) {
    bool depends = false;
    forEachSource(*node, [&](Node& source) { depends |= dependent.contains(&source); });
    if (depends && dependent.insert(node).second)
      list.push_back(node);
  }
  return list;
}

Node* scoresOf(const Node& softmax, const Ancestors& ancestors) {
  if (ancestors.ends.size() == 1)
    return ancestors.ends.front();
  // A matrix product may also compute a mask: the scores are those with the same number of elements
  // as the probabilities.
  Dim count = softmax.result().type().elementCount();
  Node* scores = nullptr;
  for (Node* product : ancestors.ends) {
    if (!product->result().type().elementCount().isKnownEqual(count))
      continue;
    if (scores)
      return nullptr;
    scores = product;
  }
  return scores;
}

} // namespace

bool isReshaping(const Node& node) {
  std::optional<MovementKind> kind = movementKind(node);
  return kind == MovementKind::Reshape || kind == MovementKind::InsertAxes ||
         kind == MovementKind::RemoveAxes;
}

std::optional<ScoreRegion> scoreRegion(Node& context) {
  const Value* probabilities = context.operand(0);
  const Value* values = context.operand(1);
  if (!context.is("MatMul") || !probabilities || !values || values->constant())
    return std::nullopt;
  Ancestors after = ancestorsOf(*probabilities, "Softmax");
  if (after.ends.size() != 1 || !after.ends.front()->operand(0))
    return std::nullopt;
  Node& softmax = *after.ends.front();
  Ancestors before = ancestorsOf(*softmax.operand(0), "MatMul");
  Node* scores = scoresOf(softmax, before);
  if (!scores)
    return std::nullopt;

  ScoreRegion region{scores, &softmax, &context, dependents(std::move(before.inner), *scores)};
  region.inner.push_back(&softmax);
  region.inner.append(dependents(std::move(after.inner), softmax));
  return region;
}

} // namespace kvopt::analysis
