// Search from a softmax to its products.
#include "passes/analysis/evaluation/attention_operands.h"

#include "ir/elementwise.h"
#include "passes/analysis/evaluation/number_operators.h"
#include "passes/analysis/evaluation/selection.h"
#include "passes/analysis/evaluation/traced_operators.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr size_t mostSearched = 64;

/// A product of two values that depend on unknown elements.
std::optional<ProductElements> productOfData(const Node& node, Evaluation& evaluation) {
  auto product = productOf(node, evaluation);
  const bool isOfData =
      product && evaluation.isData(*product->left) && evaluation.isData(*product->right);
  return isOfData ? std::move(product) : std::nullopt;
}

bool keepsPlaces(const Node& node) { return isSelecting(node) || elementFunction(node); }

Node* productBefore(Node& softmax, Evaluation& evaluation) {
  llvm::SetVector<Value*> searched;
  searched.insert(softmax.operand(0));
  Node* found = nullptr;
  for (size_t i = 0; i < searched.size() && i < mostSearched; ++i) {
    Node* node = searched[i]->producer();
    if (!node || !evaluation.isData(*searched[i]))
      continue;
    if (productOfData(*node, evaluation)) {
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

/// The product with `value` as a factor: the reader of `value`, or the sum that reads its reader.
/// Null if there is none.
Node* productReading(Node& reader, const Value& value, Evaluation& evaluation,
                     bool& hasValuesLeft) {
  Node* node = &reader;
  if (reader.is("Mul") && reader.result().hasOneUse())
    node = &reader.result().uses().begin()->user();
  const auto product = productOfData(*node, evaluation);
  if (!product || (product->left != &value && product->right != &value))
    return nullptr;
  hasValuesLeft = product->right == &value;
  return node;
}

Node* productAfter(Node& softmax, Evaluation& evaluation, bool& hasValuesLeft) {
  llvm::SetVector<Value*> searched;
  searched.insert(&softmax.result());
  Node* found = nullptr;
  for (size_t i = 0; i < searched.size() && i < mostSearched; ++i)
    for (const Use& use : searched[i]->uses()) {
      Node& node = use.user();
      if (Node* product = productReading(node, *searched[i], evaluation, hasValuesLeft)) {
        if (found && found != product)
          return nullptr;
        found = product;
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
  AttentionOperands operands;
  operands.scores = productBefore(softmax, evaluation);
  operands.output = productAfter(softmax, evaluation, operands.hasValuesLeft);
  return operands.scores && operands.output ? std::optional(operands) : std::nullopt;
}

} // namespace kvopt::analysis
