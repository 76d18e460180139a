// Walks between the products around attention's weights.
#include "passes/analysis/scores/attention_weights.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "passes/analysis/movement/data_movement.h"
#include "passes/analysis/scores/attention_like.h"
#include "passes/analysis/scores/quantized_products.h"
#include "passes/analysis/scores/score_region.h"
#include "passes/pattern/explain.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

constexpr size_t mostNodes = 48;

bool isProduct(const Node& node) {
  return node.op().isOnnx() && (node.is("MatMul") || node.is("Einsum"));
}

/// Whether the node selects rows of a table, as an embedding does.
bool picksRows(const Node& node) {
  if (movementKind(node) != MovementKind::Gather)
    return false;
  const Value* table = movedOperand(node);
  return table && table->type().hasRank() && table->type().rank() == 2;
}

/// Whether the value depends on inputs of the model, unlike a stored or dequantized weight.
bool isComputed(const Value& value) {
  llvm::SmallVector<const Value*, 16> pending{&value};
  llvm::DenseSet<const Value*> seen{&value};
  for (size_t i = 0; i < pending.size(); ++i) {
    if (pending[i]->isGraphInput() || i == mostNodes)
      return true;
    const Node* node = pending[i]->producer();
    if (!node || pending[i]->constant() || node->op() == "Shape")
      continue;
    // Computed indices select experts' weights; rows of a table selected that way count as
    // computed.
    const bool isPicked = movementKind(*node).has_value() && !picksRows(*node);
    for (const Use& use : node->operands())
      if (use.value() && (!isPicked || isMoved(use)) && seen.insert(use.value()).second)
        pending.push_back(use.value());
  }
  return false;
}

/// Whether the node is a matrix product of two computed tensors of rank three or more.
bool isProductOfComputed(const Node& node) {
  if (!node.op().isOnnx() || !node.is("MatMul"))
    return false;
  for (unsigned operand : {0u, 1u}) {
    const Value* value = node.operand(operand);
    if (!value || !value->type().hasRank() || value->type().rank() < 3 || !isComputed(*value))
      return false;
  }
  return true;
}

/// Softmaxes from which a value is computed, elementwise or by movement.
llvm::DenseSet<const Node*> softmaxesOf(const Value& value) {
  llvm::DenseSet<const Node*> found;
  llvm::SmallVector<const Value*, 16> pending{&value};
  llvm::DenseSet<const Value*> seen{&value};
  for (size_t i = 0; i < pending.size() && i < mostNodes; ++i) {
    const Node* node = pending[i]->producer();
    if (!node)
      continue;
    if (isSoftmax(*node)) {
      found.insert(node);
      continue;
    }
    if (!isElementwise(*node) && !onlyMovesData(*node))
      continue;
    for (const Use& use : node->operands())
      if (use.value() && seen.insert(use.value()).second)
        pending.push_back(use.value());
  }
  return found;
}

MatchFailure notSoftmax(const Node& at, std::string found) {
  return {ReasonCode::NotSoftmax, labelOf(at), "values weighted by one softmax per head",
          std::move(found), ""};
}

bool isSumOverKeys(const Node& node) {
  return node.op().isOnnx() && (node.is("ReduceSum") || node.is("ReduceL1") ||
                                node.is("ReduceL2") || node.is("ReduceMean"));
}

/// Whether both may have equal numbers of rows and columns.
bool isShapedLike(const Value& weights, const Value& scores) {
  for (int64_t axis : {-1, -2})
    if (weights.type().dim(axis).isKnownDifferent(scores.type().dim(axis)))
      return false;
  return true;
}

bool swapsLastAxes(const Value& value) {
  const Node* node = value.producer();
  if (!node || movementKind(*node) != MovementKind::Permutation)
    return false;
  const Movement movement = *movementOf(value);
  size_t rank = movement.axes ? movement.axes->size() : 0;
  return rank >= 3 && (*movement.axes)[rank - 1] == rank - 2 &&
         (*movement.axes)[rank - 2] == rank - 1;
}

/// Whether queries read a sum of products of keys and values, kt x v, possibly added to a decaying
/// state.
bool readsProductOfKeysAndValues(const Node& reading) {
  llvm::SmallVector<const Value*, 16> pending{reading.operand(1)};
  llvm::DenseSet<const Value*> seen{reading.operand(1)};
  for (size_t i = 0; i < pending.size() && i < mostNodes; ++i) {
    const Node* node = pending[i]->producer();
    if (!node)
      continue;
    if (isProductOfComputed(*node) && swapsLastAxes(*node->operand(0)))
      return true;
    if (isElementwise(*node))
      for (const Use& use : node->operands())
        if (use.value() && seen.insert(use.value()).second)
          pending.push_back(use.value());
  }
  return false;
}

/// Whether a reader of probabilities changes them differently for different keys: a guard does not,
/// nor does a factor for a whole row.
bool changesWeights(const Node& reader) {
  const std::optional<ElementFunction> function = elementFunction(reader);
  if (!reader.is("Mul") && !reader.is("Div"))
    return function == ElementFunction::Nonlinear || function == ElementFunction::Bound;
  return llvm::all_of(reader.operands(), [](const Use& use) {
    return use.value() && !use.value()->type().elementCount().isKnownEqual(Dim::fixed(1)) &&
           use.value()->type().hasRank() && use.value()->type().dim(-1).value() != 1;
  });
}

} // namespace

std::optional<MatchFailure> combinedProbabilities(const Node& softmax) {
  llvm::SmallVector<const Node*, 16> reached{&softmax};
  llvm::DenseSet<const Node*> seen{&softmax};
  for (size_t i = 0; i < reached.size() && i < mostNodes; ++i)
    for (const Use& use : reached[i]->result().uses()) {
      const Node& reader = use.user();
      if (isProduct(reader)) {
        bool hasWeight = llvm::any_of(reader.operands(), [](const Use& operand) {
          return operand.value() && !isComputed(*operand.value());
        });
        if (hasWeight)
          return notSoftmax(reader, "probabilities of several heads mixed by a matrix (" +
                                        reader.op().str() + ")");
        continue;
      }
      if ((reader.is("Sub") || reader.is("Add")) && reader.op().isOnnx() &&
          softmaxesOf(reader.result()).size() > 1)
        return notSoftmax(reader, std::string(reader.is("Sub") ? "the difference" : "the sum") +
                                      " of several softmaxes");
      if (worksOnCodes(reader))
        return MatchFailure{ReasonCode::QuantizedAttention, labelOf(reader),
                            "probabilities that are floating-point numbers throughout",
                            reader.op().str() + " of them", ""};
      if (changesWeights(reader))
        return MatchFailure{ReasonCode::ProbabilitiesChanged, labelOf(reader),
                            "probabilities that weight the values unchanged",
                            reader.op().str() + " of them", ""};
      if ((isElementwise(reader) || onlyMovesData(reader)) && seen.insert(&reader).second)
        reached.push_back(&reader);
    }
  return std::nullopt;
}

std::optional<MatchFailure> mixedScores(const Node& softmax) {
  const Node* mixing = nullptr;
  llvm::SmallVector<const Value*, 16> pending{softmax.operand(0)};
  llvm::DenseSet<const Value*> seen{softmax.operand(0)};
  for (size_t i = 0; i < pending.size() && i < mostNodes; ++i) {
    const Node* node = pending[i] ? pending[i]->producer() : nullptr;
    if (!node)
      continue;
    bool isMatMul = node->op().isOnnx() && node->is("MatMul");
    if (isMatMul && isProductOfComputed(*node))
      return mixing ? std::optional<MatchFailure>(
                          notSoftmax(*mixing, "scores of several heads mixed by a matrix (MatMul)"))
                    : std::nullopt;
    bool isMixing = isMatMul && pending[i]->type().hasRank() && pending[i]->type().rank() >= 4;
    if (isMixing)
      mixing = node;
    if (isMixing || isElementwise(*node) || onlyMovesData(*node))
      for (const Use& use : node->operands())
        if (use.value() && seen.insert(use.value()).second)
          pending.push_back(use.value());
  }
  return std::nullopt;
}

const Value* keysOfScores(const Node& softmax) {
  llvm::SmallVector<const Value*, 16> pending{softmax.operand(0)};
  llvm::DenseSet<const Value*> seen;
  for (size_t i = 0; i < pending.size() && i < mostNodes; ++i) {
    const Node* node = pending[i] ? pending[i]->producer() : nullptr;
    if (!node)
      continue;
    if (node->op().isOnnx() && node->is("MatMul") && !node->operand(0)->constant() &&
        !node->operand(1)->constant())
      return node->operand(1);
    if (isElementwise(*node) || isReshaping(*node))
      for (const Use& use : node->operands())
        if (use.value() && seen.insert(use.value()).second)
          pending.push_back(use.value());
  }
  return nullptr;
}

std::optional<MatchFailure> weighedWithoutSoftmax(const Node& weighing) {
  if (weighing.result().isUnused() || !isProductOfComputed(weighing))
    return std::nullopt;
  if (readsProductOfKeysAndValues(weighing))
    return notSoftmax(weighing, "a product of keys and values that queries read");
  // All operators between the products are elementwise or reshapes; the scores must be found
  // exactly once.
  const Node* scores = nullptr;
  const Node* function = nullptr;
  bool isMasked = false, hasSum = false;
  llvm::SmallVector<const Value*, 16> pending{weighing.operand(0)};
  llvm::DenseSet<const Value*> seen{weighing.operand(0)};
  for (size_t i = 0; i < pending.size(); ++i) {
    const Node* node = pending[i]->producer();
    if (!node || i == mostNodes)
      continue;
    if (isProductOfComputed(*node)) {
      if (scores)
        return std::nullopt;
      scores = node;
      continue;
    }
    bool isFunction = elementFunction(*node) == ElementFunction::Nonlinear;
    if (isSoftmax(*node) || !(isElementwise(*node) || isReshaping(*node) || isSumOverKeys(*node)))
      continue;
    if (isFunction && !function)
      function = node;
    hasSum |= isSumOverKeys(*node);
    isMasked |= node->is("Where") || node->is("Mul");
    for (const Use& use : node->operands())
      if (use.value() && seen.insert(use.value()).second)
        pending.push_back(use.value());
  }
  if (!scores || !isShapedLike(*weighing.operand(0), scores->result()) ||
      !softmaxesOf(*scores->operand(0)).empty())
    return std::nullopt;
  if (hasSum && function && function->is("Exp"))
    return MatchFailure{ReasonCode::PatternMismatch, labelOf(weighing),
                        "attention in a form that a rule recognizes",
                        "a softmax written in several operators", ""};
  return notSoftmax(function ? *function : weighing,
                    "scores weighted by " +
                        (function ? function->op().type().str()
                                  : std::string(isMasked ? "a factor" : "nothing at all")));
}

} // namespace kvopt::analysis
