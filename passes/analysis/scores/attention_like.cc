// Walks from a softmax to the matrix products around it.
#include "passes/analysis/scores/attention_like.h"

#include "passes/analysis/scores/quantized_products.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Breadth-first walk from `start`, so that a long chain of mask arithmetic does not hide a nearby
/// matrix product; visits at most a few hundred values.
bool reachesNearby(
    const Value& start,
    llvm::function_ref<bool(const Value&, llvm::SmallVectorImpl<const Value*>&)> isGoalElseExpand) {
  constexpr size_t mostValues = 256;
  llvm::SmallVector<const Value*, 32> queue{&start};
  llvm::DenseSet<const Value*> seen{&start};
  for (size_t next = 0; next < queue.size() && next < mostValues; ++next) {
    llvm::SmallVector<const Value*, 8> neighbours;
    if (isGoalElseExpand(*queue[next], neighbours))
      return true;
    for (const Value* neighbour : neighbours)
      if (seen.insert(neighbour).second)
        queue.push_back(neighbour);
  }
  return false;
}

/// Whether a product of two computed matrices feeds `value`.
bool comesFromScores(const Value& value) {
  return reachesNearby(value, [](const Value& step, llvm::SmallVectorImpl<const Value*>& expand) {
    const Node* producer = step.producer();
    if (!producer || producer->op() == "Shape")
      return false;
    if (const Value* right = secondFactor(*producer)) {
      const Value* left = producer->operand(0);
      if (!left)
        return false;
      if (!left->constant() && !right->constant())
        return true;
      // A matrix that mixes the scores of several heads; a router's logits have fewer axes.
      if (step.type().hasRank() && step.type().rank() >= 4)
        expand.push_back(left->constant() ? right : left);
      return false;
    }
    for (const Use& use : producer->operands())
      if (use.value())
        expand.push_back(use.value());
    return false;
  });
}

/// Whether `value` becomes the left side of a matrix product.
bool weighsRows(const Value& value) {
  return reachesNearby(value, [](const Value& step, llvm::SmallVectorImpl<const Value*>& expand) {
    for (const Use& use : step.uses()) {
      const Node& user = use.user();
      if (secondFactor(user)) {
        if (use.operandIndex() == 0)
          return true;
        continue;
      }
      if (user.op() == "Shape" || user.op() == "Softmax")
        continue;
      for (const Value& result : user.results())
        expand.push_back(&result);
    }
    return false;
  });
}

} // namespace

bool isSoftmax(const Node& node) { return node.op() == "Softmax" || node.op() == "LogSoftmax"; }

bool isAttentionLike(const Node& softmax) {
  const TensorType& type = softmax.result().type();
  return (!type.hasRank() || type.rank() >= 3) && softmax.operand(0) &&
         weighsRows(softmax.result()) && comesFromScores(*softmax.operand(0));
}

} // namespace kvopt::analysis
