// Moves a factor per row from the probabilities to the result of attention.
//
//   before   o = MatMul(Mul(p, g), v)      p[B,H,S,T] from a softmax, g[B,H,S,1] or broadcast to it
//   after    o = Mul(MatMul(p, v), g)      (Div likewise)
//
// Gates and head masks are such factors. A factor that differs between keys is not.
#include "passes/analysis/scores/score_region.h"
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class DelayRowFactor final : public Rule {
  Var p{"p"}, g{"g"}, v{"v"};

public:
  llvm::StringRef name() const override { return "delay-row-factor"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    return op(
        "MatMul",
        {oneOf("factor", {{"Mul", commutative("Mul", {p, g})}, {"Div", op("Div", {p, g})}}), v});
  }

  void constraints(Constraints& c) const override {
    c.require("probabilities of rank 4 that go to a product with the values",
              [this](const Match& match) {
                return match[p].type().hasRank() && match[p].type().rank() == 4 &&
                       match[v].type().hasRank() && match[v].type().rank() == 4 &&
                       scoreRegion(match.root());
              });
    c.require(
        "a factor that is the same for all keys of a row",
        [this](const Match& match) { return isPerRow(match[g].type(), match[p].type()); },
        ReasonCode::ProbabilitiesChanged);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Value& context = rewriter.create("MatMul", {&match[p], &match[v]}, {}, 1, "context").result();
    Value& scaled =
        rewriter.create(match.choice("factor"), {&context, &match[g]}, {}, 1, "gated").result();
    return rewriter.replace(match.root().result(), scaled);
  }

private:
  /// Whether the factor has one column, and no more rows, heads or batches than the probabilities.
  static bool isPerRow(const TensorType& factor, const TensorType& probabilities) {
    if (!factor.hasRank() || factor.rank() > 4 || probabilities.dim(-1).value() == 1)
      return false;
    for (int64_t axis = 1; axis <= static_cast<int64_t>(factor.rank()); ++axis) {
      const Dim extent = factor.dim(-axis);
      if (extent.value() != 1 && (axis == 1 || !extent.isKnownEqual(probabilities.dim(-axis))))
        return false;
    }
    return true;
  }
};

} // namespace

void register_delay_row_factor(RuleRegistry& registry) {
  registry.add(std::make_unique<DelayRowFactor>());
}

} // namespace kvopt::rules
