// Attention spelled out in matrix products and a softmax → ai.kvopt::Sdpa.
//
//   before   o = MatMul(Softmax<-1>(MatMul(q, Transpose<0,1,3,2>(k)) [* or / scale] [+ mask]), v)
//   after    o = ai.kvopt.Sdpa<scale>(q, k, v[, mask])
#include "ir/attribute.h"
#include "passes/rule.h"

namespace kvopt {
namespace {

class RaiseSpelledAttention final : public Rule {
  Var q{"q"}, k{"k"}, v{"v"}, mask{"mask"}, scale{"scale"};

public:
  llvm::StringRef name() const override { return "raise-spelled-attention"; }
  RuleGroup group() const override { return RuleGroup::Raise; }

  P pattern() const override {
    P keysTransposed = op("Transpose", {k}, {attr("perm", {0, 1, 3, 2})});
    P scores = op("MatMul", {q, keysTransposed});
    P scaled = oneOf("scale", {{"mul", commutative("Mul", {scores, constant(scale)})},
                               {"div", op("Div", {scores, constant(scale)})},
                               {"none", scores}});
    P masked = optional(commutative("Add", {scaled, mask}), scaled);
    return op("MatMul", {op("Softmax", {masked}, {attr("axis", -1)}), v});
  }

  void constraints(Constraints& c) const override {
    c.shape(q, {"B", "H", "S", "D"});
    c.shape(k, {"B", "G", "T", "D"});
    c.shape(v, {"B", "G", "T", "Dv"});
    c.require(
        "keys have the query's number of heads, or one",
        [](const Match& match) {
          return match.dim("G").isKnownEqual(match.dim("H")) || match.dim("G").value() == 1;
        },
        ReasonCode::HeadCountUnproven);
    c.check([this](const Match& match, Refusal& refusal) {
      const Value* factor = match.find(scale);
      // More axes than the scores have would give the result more axes, too.
      if (!factor || (factor->constant()->shape().size() <= 4 && scalarValue(*factor->constant())))
        return true;
      return refusal.because([&] {
        return MatchFailure{ReasonCode::ScaleNotConstant, factor->name().str(),
                            "a constant of one element", factor->type().str(), ""};
      });
    });
    c.check([this](const Match& match, Refusal& refusal) {
      const Value* additive = match.find(mask);
      if (!additive || (additive->type().hasRank() && additive->type().rank() <= 4))
        return true;
      return refusal.because([&] {
        bool isKnown = additive->type().hasRank();
        return MatchFailure{isKnown ? ReasonCode::ShapeMismatch : ReasonCode::DynamicRank,
                            additive->name().str(), "a mask of at most 4 axes",
                            additive->type().str(), ""};
      });
    });
    c.require(
        "query, keys and values have one element type",
        [this](const Match& match) {
          ElementType type = match[q].type().elementType();
          return type != ElementType::Undefined && type == match[k].type().elementType() &&
                 type == match[v].type().elementType();
        },
        ReasonCode::DtypeMix);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    llvm::SmallVector<Value*, 4> operands{&match[q], &match[k], &match[v]};
    if (Value* additive = match.find(mask))
      operands.push_back(additive);
    std::vector<NamedAttribute> attributes;
    attributes.push_back({"scale", Attribute::ofFloat(scaleOf(match))});
    Node& sdpa = rewriter.create("ai.kvopt::Sdpa", operands, std::move(attributes), 1, "attention");
    rewriter.recordSources(sdpa, match.nodes());
    return rewriter.replace(match.root().result(), sdpa.result());
  }

private:
  float scaleOf(const Match& match) const {
    const Value* factor = match.find(scale);
    if (!factor)
      return 1.0f;
    double number = *scalarValue(*factor->constant());
    return static_cast<float>(match.choice("scale") == "div" ? 1.0 / number : number);
  }
};

} // namespace

void register_raise_spelled_attention(RuleRegistry& registry) {
  registry.add(std::make_unique<RaiseSpelledAttention>());
}

} // namespace kvopt
