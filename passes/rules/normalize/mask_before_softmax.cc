// Replaces masked and renormalized probabilities by a softmax of masked scores.
//
//   before   w = Mul(Softmax<-1>(x), m)         m of zeros and ones; or Where(c, Softmax(x), 0)
//            p = Div(w, ReduceSum<-1>(w))
//   after    p = Softmax<-1>(Where(m, x, -inf))
//
// A row without any visible key is 0/0 before and NaN after. A mask without the division is another
// kind of attention: its denominator includes the hidden keys.
#include "ir/attribute.h"
#include "passes/analysis/mask/truth_value.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/analysis/scores/last_axis.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"

#include <limits>

namespace kvopt::rules {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

class MaskBeforeSoftmax final : public Rule {
  Var x{"x"}, m{"m"}, zero{"zero"}, kept{"kept"}, sum{"sum"};

public:
  llvm::StringRef name() const override { return "mask-before-softmax"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    // The nodes below may have other readers; otherwise they are dead after the rewrite.
    P softmax = escaping(op("Softmax", {x}, attrs({{"axis", -1}})));
    P masked = oneOf("mask", {{"product", escaping(commutative("Mul", {softmax, m}))},
                              {"kept", escaping(op("Where", {m, softmax, zero}))},
                              {"hidden", escaping(op("Where", {m, zero, softmax}))}});
    P total = oneOf("sum", {{"attribute", escaping(op("ReduceSum", {kept}))},
                            {"operand", escaping(op("ReduceSum", {kept, any()}))}});
    return op("Div", {bind(kept, masked), bind(sum, total)});
  }

  void constraints(Constraints& c) const override {
    c.require("a sum over the last axis that keeps it",
              [this](const Match& match) { return reducesLastAxis(*match[sum].producer()); });
    c.require("a mask of zeros and ones", [this](const Match& match) {
      const Value* filler = match.find(zero);
      return filler ? uniformValue(*filler) == 0.0 : isZeroOrOne(match[m]);
    });
    c.require(
        "a mask with one column per score",
        [this](const Match& match) {
          const TensorType& mask = match[m].type();
          const TensorType& scores = match[x].type();
          if (!mask.hasRank() || !scores.hasRank() || mask.rank() > scores.rank())
            return false;
          return mask.rank() == 0 || mask.dim(-1).value() == 1 ||
                 mask.dim(-1).isKnownEqual(scores.dim(-1));
        },
        ReasonCode::ShapeUnknown);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    AttentionBuilder builder(rewriter);
    Value& scores = match[x];
    Value& condition = builder.castTo(truthOf(match[m]), ElementType::Bool);
    BuilderOperand hidden =
        floatScalar(scores.type().elementType(), -std::numeric_limits<double>::infinity());
    bool isHidden = match.choice("mask") == "hidden";
    Value& masked = isHidden ? builder.node("Where", {condition, hidden, scores}, {}, "masked")
                             : builder.node("Where", {condition, scores, hidden}, {}, "masked");
    Node& softmax =
        rewriter.create("Softmax", {&masked}, attrs({{"axis", -1}}), 1, "probabilities");
    return rewriter.replace(match.root().result(), softmax.result());
  }
};

} // namespace

void register_mask_before_softmax(RuleRegistry& registry) {
  registry.add(std::make_unique<MaskBeforeSoftmax>());
}

} // namespace kvopt::rules
