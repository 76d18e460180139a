// Follows sequences of all tokens.
#include "passes/analysis/tokens/prefix_sequences.h"

#include "ir/elementwise.h"
#include "ir/movement.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

bool isPrefixSum(const Node& node) { return node.is("CumSum") && node.intAttr("reverse", 0) == 0; }

/// Movements after which an axis can be identified by its extent.
bool keepsTokens(const Node& node) {
  const std::optional<MovementKind> kind = movementKind(node);
  return kind == MovementKind::Same || kind == MovementKind::Convert ||
         kind == MovementKind::Permutation || kind == MovementKind::InsertAxes ||
         kind == MovementKind::RemoveAxes;
}

class PrefixFollower {
public:
  explicit PrefixFollower(Dim count) : tokens(std::move(count)) {}

  void start(const Value& input) {
    if (const auto axis = axisOf(input))
      found[&input] = {*axis, false};
  }

  void visit(const Node& node) {
    if (node.results().size() != 1 || !node.subgraphs().empty())
      return;
    bool isCounted = false;
    std::optional<int64_t> fromEnd;
    for (const Use& use : node.operands()) {
      if (!use.value())
        continue;
      const auto sequence = found.find(use.value());
      if (sequence == found.end()) {
        if (!use.value()->constant())
          return;
        continue;
      }
      const int64_t place = use.value()->type().rank() - int64_t{sequence->second.axis};
      if (fromEnd && *fromEnd != place)
        return;
      fromEnd = place;
      isCounted |= sequence->second.isCounted;
    }
    const std::optional<unsigned> axis = fromEnd ? axisOf(node.result()) : std::nullopt;
    if (!axis || (elementFunction(node) && *axis + *fromEnd != node.result().type().rank()))
      return;
    if (isPrefixSum(node))
      isCounted = true;
    else if (!elementFunction(node) && !keepsTokens(node))
      return;
    found[&node.result()] = {*axis, isCounted};
  }

  PrefixSequences found;

private:
  std::optional<unsigned> axisOf(const Value& value) const {
    std::optional<unsigned> single;
    if (!value.type().hasRank())
      return std::nullopt;
    for (unsigned axis = 0; axis < value.type().rank(); ++axis) {
      if (!value.type().dim(axis).isKnownEqual(tokens))
        continue;
      if (single)
        return std::nullopt;
      single = axis;
    }
    return single;
  }

  Dim tokens;
};

} // namespace

PrefixSequences findPrefixSequences(const Graph& graph, llvm::ArrayRef<const Value*> inputs,
                                    const Dim& tokens) {
  PrefixFollower follower(tokens);
  if (inputs.empty())
    return follower.found;
  for (const Value* input : inputs)
    follower.start(*input);
  for (const Node& node : graph.nodes())
    follower.visit(node);
  return follower.found;
}

std::optional<llvm::SmallVector<const Value*, 2>> prefixInputs(const Value& value) {
  constexpr size_t mostValues = 64;
  llvm::SmallVector<const Value*, 2> inputs;
  llvm::SmallVector<const Value*, 8> pending(1, &value);
  llvm::DenseSet<const Value*> seen{&value};
  while (!pending.empty()) {
    const Value* next = pending.pop_back_val();
    if (next->constant())
      continue;
    const Node* node = next->producer();
    if (!node && next->isGraphInput() && !next->graph().parentNode()) {
      inputs.push_back(next);
      continue;
    }
    if (!node || seen.size() > mostValues ||
        (!elementFunction(*node) && !isPrefixSum(*node) && !keepsTokens(*node)))
      return std::nullopt;
    for (const Use& use : node->operands())
      if (use.value() && seen.insert(use.value()).second)
        pending.push_back(use.value());
  }
  return inputs;
}

} // namespace kvopt::analysis
