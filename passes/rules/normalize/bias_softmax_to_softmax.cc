// Replaces com.microsoft::BiasSoftmax over the last axis by Add and Softmax.
//
//   before   p = com.microsoft.BiasSoftmax<axis = 3>(x, bias)       x[B,H,S,T]
//   after    p = Softmax<axis = 3>(Add(x, bias))
//
// The last axis has the same meaning in every version of Softmax.
#include "ir/attribute.h"
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class BiasSoftmaxToSoftmax final : public Rule {
  Var x{"x"}, bias{"bias"};

public:
  llvm::StringRef name() const override { return "bias-softmax-to-softmax"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    return op("com.microsoft::BiasSoftmax", {x, bias}, attrs({{"axis", -1}}));
  }

  void constraints(Constraints& c) const override {
    c.require(
        "scores and a bias of known rank",
        [this](const Match& match) {
          return match[x].type().hasRank() && match[bias].type().hasRank() &&
                 match[bias].type().rank() <= match[x].type().rank();
        },
        ReasonCode::DynamicRank);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Value& sum = rewriter.create("Add", {&match[x], &match[bias]}, {}, 1, "biased").result();
    Node& softmax = rewriter.create(
        "Softmax", {&sum}, attrs({{"axis", match[x].type().rank() - 1}}), 1, "probabilities");
    return rewriter.replace(match.root().result(), softmax.result());
  }
};

} // namespace

void register_bias_softmax_to_softmax(RuleRegistry& registry) {
  registry.add(std::make_unique<BiasSoftmaxToSoftmax>());
}

} // namespace kvopt::rules
