// Replaces the exponential of a log-softmax by a softmax.
//
//   before   p = Exp(LogSoftmax<axis>(x))
//   after    p = Softmax<axis>(x)
#include "ir/attribute.h"
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class ExpOfLogSoftmax final : public Rule {
  Var x{"x"}, logarithms{"logarithms"};

public:
  llvm::StringRef name() const override { return "exp-of-log-softmax"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    return op("Exp", {escaping(bind(logarithms, op("LogSoftmax", {x})))});
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    // Both operators have the same versions, in which their axis has the same meaning.
    Node& softmax = rewriter.create(
        "Softmax", {&match[x]}, cloneAttributes(*match[logarithms].producer()), 1, "probabilities");
    return rewriter.replace(match.root().result(), softmax.result());
  }
};

} // namespace

void register_exp_of_log_softmax(RuleRegistry& registry) {
  registry.add(std::make_unique<ExpOfLogSoftmax>());
}

} // namespace kvopt::rules
