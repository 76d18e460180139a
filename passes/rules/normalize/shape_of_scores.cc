// Computes the shape of attention's scores from the operands of their product, so that no mask
// needs the scores themselves.
//
//   before   s = MatMul(q, kt)   n = Shape(f(s))      f elementwise, a mask or a softmax
//   after    n from the extents of graph inputs, or Concat(Shape(q)[:-1], Shape(kt)[-1:])
//
// Exporters read the numbers of queries and keys where they need them, after the product. Fused
// attention has no scores, and a product that is kept for its shape reads the whole cache.
#include "ir/elementwise.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"
#include "passes/pattern/shape_builder.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace kvopt::rules {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

constexpr unsigned mostSteps = 12;

bool isSoftmax(const Node& node) { return node.op().isOnnx() && node.is("Softmax"); }

/// The operand that provably has the shape of the node's result; null if there is none.
Value* sameShapeOperand(const Node& node) {
  if (isSoftmax(node))
    return node.operand(0);
  if (!isElementwise(node))
    return nullptr;
  const TensorType& type = node.result().type();
  auto isScalar = [](const Use& use) {
    const TensorData* constant = use.value() ? use.value()->constant() : nullptr;
    return constant && constant->shape().empty();
  };
  for (unsigned i = 0; i < node.operands().size(); ++i) {
    Value* operand = node.operand(i);
    if (!operand || operand->constant())
      continue;
    bool isSame = operand->type().hasRank() && type.hasRank() &&
                  isKnownSameShape(operand->type().shape(), type.shape());
    bool isOnly = llvm::all_of(
        node.operands(), [&](const Use& use) { return use.value() == operand || isScalar(use); });
    if (isSame || isOnly)
      return operand;
  }
  return nullptr;
}

/// Whether elementwise nodes connect the product to a softmax.
bool becomesProbabilities(const Node& product) {
  llvm::SmallVector<const Node*, 16> reached{&product};
  llvm::SmallPtrSet<const Node*, 16> seen{&product};
  constexpr size_t mostNodes = 32;
  for (size_t next = 0; next < reached.size() && next < mostNodes; ++next)
    for (const Use& use : reached[next]->result().uses()) {
      if (isSoftmax(use.user()))
        return true;
      if (isElementwise(use.user()) && seen.insert(&use.user()).second)
        reached.push_back(&use.user());
    }
  return false;
}

class ShapeOfScores final : public Rule {
  Var scores{"scores"};
  Payload<Node*> productOfHeads;

  /// The product of queries and keys from which the scores are computed, in its shape.
  static std::optional<Node*> productOf(Value& value) {
    Value* step = &value;
    for (unsigned passed = 0; step && passed < mostSteps; ++passed) {
      Node* node = step->producer();
      if (!node)
        return std::nullopt;
      if (node->op().isOnnx() && node->is("MatMul"))
        return isProductOfHeads(*node) && becomesProbabilities(*node) ? std::optional(node)
                                                                      : std::nullopt;
      step = sameShapeOperand(*node);
    }
    return std::nullopt;
  }

  /// Whether the node is a product of two computed tensors, and the first has the result's batch
  /// and heads.
  static bool isProductOfHeads(const Node& product) {
    const Value* left = product.operand(0);
    const Value* right = product.operand(1);
    if (!left || !right || left->constant() || right->constant() || !left->type().hasRank() ||
        !right->type().hasRank() || left->type().rank() < 3 ||
        left->type().rank() < right->type().rank() || !product.result().type().hasRank())
      return false;
    for (int64_t axis = 3; axis <= static_cast<int64_t>(right->type().rank()); ++axis) {
      const Dim& extent = right->type().dim(-axis);
      if (extent.value() != 1 && !extent.isKnownEqual(left->type().dim(-axis)))
        return false;
    }
    return true;
  }

public:
  llvm::StringRef name() const override { return "shape-of-scores"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("Shape", {scores}); }

  void constraints(Constraints& c) const override {
    c.plan(productOfHeads, "scores with the batch and heads of the queries",
           [this](const Match& match) { return productOf(match[scores]); });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& shape = match.root();
    const Node& product = *match[productOfHeads];
    auto rank = static_cast<int64_t>(product.operand(0)->type().rank());
    auto clamp = [&](int64_t position) {
      return std::clamp<int64_t>(position < 0 ? position + rank : position, 0, rank);
    };
    int64_t start = clamp(shape.intAttr("start", 0));
    int64_t end = std::max(start, clamp(shape.intAttr("end", rank)));
    // Extents of inputs are preferred: the keys' own shape may be that of the present.
    llvm::ArrayRef<Dim> known = product.result().type().shape();
    if (Value* extents = ShapeBuilder(rewriter).vector(
            known.slice(static_cast<size_t>(start), static_cast<size_t>(end - start))))
      return rewriter.replace(shape.result(), *extents);
    Value& queries = *product.operand(0);
    Value& keys = *product.operand(1);
    auto keyRank = static_cast<int64_t>(keys.type().rank());
    AttentionBuilder build(rewriter);
    Value& rows = build.slice(build.node("Shape", {queries}), 0, 0, rank - 1);
    Value& columns = build.slice(build.node("Shape", {keys}), 0, keyRank - 1, keyRank);
    Value* whole = &build.concat(rows, columns, 0);
    if (start != 0 || end != rank)
      whole = &build.slice(*whole, 0, start, end);
    return rewriter.replace(shape.result(), *whole);
  }
};

} // namespace

void register_shape_of_scores(RuleRegistry& registry) {
  registry.add(std::make_unique<ShapeOfScores>());
}

} // namespace kvopt::rules
