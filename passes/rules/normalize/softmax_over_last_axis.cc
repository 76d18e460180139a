// Transposes scores with keys as rows, and their softmax over the rows, into scores with keys as
// columns.
//
//   before   p = Softmax<axis = 2>(MatMul(k, Transpose<0,1,3,2>(q)) + m)   p[B,H,T,S], k[B,H,T,D]
//   after    p = Transpose<0,1,3,2>(Softmax<axis = 3>(MatMul(q, Transpose<0,1,3,2>(k)) + mt))
//
// mt is m with its last two axes exchanged. Elementwise operators between the product and the
// softmax are created again.
#include "ir/attribute.h"
#include "ir/elementwise.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::rules {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

/// Exchanges the last two axes of values. Without a rewriter it only checks whether a matrix
/// product of computed operands can be reached.
class Exchange {
public:
  explicit Exchange(Rewriter* graphRewriter) : rewriter(graphRewriter) {}

  bool reachesProduct(const Value& value, unsigned depth = 0) const {
    const Node* node = value.producer();
    if (!node || depth == mostDepth)
      return false;
    if (node->is("MatMul"))
      return isProduct(*node);
    if (!isElementwise(*node))
      return false;
    for (const Use& use : node->operands())
      if (use.value() && reachesProduct(*use.value(), depth + 1))
        return true;
    return false;
  }

  /// Null if the rank of an operand does not determine the exchange.
  Value* of(Value& value) {
    const TensorType& type = value.type();
    if (!type.hasRank())
      return nullptr;
    if (isOneColumnAndRow(type))
      return &value;
    if (type.rank() != 4)
      return nullptr;
    if (Value* known = made.lookup(&value))
      return known;
    Value* result = reachesProduct(value) ? remade(*value.producer()) : &transposed(value);
    made[&value] = result;
    return result;
  }

private:
  static constexpr unsigned mostDepth = 12;

  static bool isProduct(const Node& node) {
    for (const Use& use : node.operands())
      if (!use.value() || use.value()->constant() || !use.value()->type().hasRank() ||
          use.value()->type().rank() != 4)
        return false;
    return true;
  }

  static bool isOneColumnAndRow(const TensorType& type) {
    for (int64_t axis = 1; axis <= 2 && axis <= static_cast<int64_t>(type.rank()); ++axis)
      if (type.dim(-axis).value() != 1)
        return false;
    return true;
  }

  Value& transposed(Value& value) {
    return AttentionBuilder(*rewriter).transpose(value, {0, 1, 3, 2});
  }

  Value* remade(Node& node) {
    if (node.is("MatMul"))
      return &rewriter
                  ->create("MatMul", {&transposed(*node.operand(1)), &transposed(*node.operand(0))},
                           {}, 1, "scores")
                  .result();
    llvm::SmallVector<Value*, 3> operands;
    for (const Use& use : node.operands()) {
      operands.push_back(use.value() ? of(*use.value()) : nullptr);
      if (use.value() && !operands.back())
        return nullptr;
    }
    return &rewriter->createLike(node, operands, "exchanged").result();
  }

  Rewriter* rewriter;
  llvm::DenseMap<const Value*, Value*> made;
};

class SoftmaxOverLastAxis final : public Rule {
  Var x{"x"};

public:
  llvm::StringRef name() const override { return "softmax-over-last-axis"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("Softmax", {x}, attrs({{"axis", -2}})); }

  void constraints(Constraints& c) const override {
    // Before opset 13, Softmax flattened all later axes into one.
    c.require("a softmax along one axis, from opset 13 on",
              [](const Match& match) { return match.root().graph().opsetVersion() >= 13; });
    c.require("scores of rank 4 from a product of keys and queries", [this](const Match& match) {
      return match[x].type().hasRank() && match[x].type().rank() == 4 &&
             Exchange(nullptr).reachesProduct(match[x]);
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Value* scores = Exchange(&rewriter).of(match[x]);
    if (!scores) {
      rewriter.discard();
      return MatchFailure{ReasonCode::ShapeUnknown, match[x].name().str(),
                          "masks of rank 4, or of one number", "another rank", ""};
    }
    Value& softmax =
        rewriter.create("Softmax", {scores}, attrs({{"axis", 3}}), 1, "probabilities").result();
    Value& turned = AttentionBuilder(rewriter).transpose(softmax, {0, 1, 3, 2});
    return rewriter.replace(match.root().result(), turned);
  }
};

} // namespace

void register_softmax_over_last_axis(RuleRegistry& registry) {
  registry.add(std::make_unique<SoftmaxOverLastAxis>());
}

} // namespace kvopt::rules
