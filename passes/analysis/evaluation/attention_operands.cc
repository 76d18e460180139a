// From a softmax to its products.
#include "passes/analysis/evaluation/attention_operands.h"

#include "passes/analysis/evaluation/number_operators.h"
#include "passes/analysis/evaluation/selection.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr size_t mostSearched = 64;

bool isProduct(const Node& node, const Evaluation& evaluation) {
  return (node.is("MatMul") || node.is("Einsum")) && node.operands().size() == 2 &&
         evaluation.isData(*node.operand(0)) && evaluation.isData(*node.operand(1));
}

bool keepsPlaces(const Node& node) { return isSelecting(node) || isElementwiseOnNumbers(node); }

Node* productBefore(Node& softmax, const Evaluation& evaluation) {
  llvm::SetVector<Value*> searched;
  searched.insert(softmax.operand(0));
  Node* found = nullptr;
  for (size_t i = 0; i < searched.size() && i < mostSearched; ++i) {
    Node* node = searched[i]->producer();
    if (!node || !evaluation.isData(*searched[i]))
      continue;
    if (isProduct(*node, evaluation)) {
      if (found && found != node)
        return nullptr;
      found = node;
    } else if (keepsPlaces(*node)) {
      for (const Use& use : node->operands())
        if (use.value())
          searched.insert(use.value());
    }
  }
  return found;
}

Node* productAfter(Node& softmax, const Evaluation& evaluation, Value*& weights) {
  llvm::SetVector<Value*> searched;
  searched.insert(&softmax.result());
  Node* found = nullptr;
  for (size_t i = 0; i < searched.size() && i < mostSearched; ++i)
    for (const Use& use : searched[i]->uses()) {
      Node& node = use.user();
      if (isProduct(node, evaluation)) {
        if (found && found != &node)
          return nullptr;
        found = &node;
        weights = searched[i];
      } else if (keepsPlaces(node)) {
        searched.insert(&node.result());
      }
    }
  return found;
}

} // namespace

std::optional<AttentionOperands> attentionOperands(Node& softmax, Evaluation& evaluation) {
  if (!softmax.operand(0))
    return std::nullopt;
  Value* weights = nullptr;
  Node* before = productBefore(softmax, evaluation);
  Node* after = productAfter(softmax, evaluation, weights);
  if (!before || !after)
    return std::nullopt;
  return AttentionOperands{before, after, after->operand(0) == weights ? 1U : 0U};
}

} // namespace kvopt::analysis
