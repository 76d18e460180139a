// Replaces a product of values and transposed probabilities by the transpose of the usual product.
//
//   before   o = MatMul(vt, Transpose<0,1,3,2>(p))       vt[B,H,Dv,T], p[B,H,S,T] from a softmax
//   after    o = Transpose<0,1,3,2>(MatMul(p, Transpose<0,1,3,2>(vt)))
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

class ProbabilitiesFirst final : public Rule {
  Var vt{"vt"}, p{"p"};

public:
  llvm::StringRef name() const override { return "probabilities-first"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    return op("MatMul", {vt, escaping(op("Transpose", {p}, attrs({{"perm", {0, 1, 3, 2}}})))});
  }

  void constraints(Constraints& c) const override {
    c.require("probabilities, as a softmax over the last axis gives them, and values of rank 4",
              [this](const Match& match) {
                return comesFromSoftmax(match[p]) && match[vt].type().hasRank() &&
                       match[vt].type().rank() == 4;
              });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    AttentionBuilder builder(rewriter);
    Value& values = builder.transpose(match[vt], {0, 1, 3, 2});
    Value& context = rewriter.create("MatMul", {&match[p], &values}, {}, 1, "context").result();
    return rewriter.replace(match.root().result(), builder.transpose(context, {0, 1, 3, 2}));
  }

private:
  /// Looks through casts and guards, whose last operand is the probabilities.
  static bool comesFromSoftmax(const Value& value) {
    constexpr unsigned mostSteps = 4;
    const Value* current = &value;
    for (unsigned step = 0; current && step < mostSteps; ++step) {
      const Node* node = current->producer();
      if (!node)
        return false;
      if (node->is("Softmax")) {
        const TensorType& type = current->type();
        int64_t axis = node->intAttr("axis", node->graph().opsetVersion() >= 13 ? -1 : 1);
        return type.hasRank() && type.rank() == 4 && (axis == -1 || axis == 3);
      }
      if (!node->is("Cast") && !node->is("Dropout") && !node->is("Where"))
        return false;
      current = node->operand(node->is("Where") ? 2 : 0);
    }
    return false;
  }
};

} // namespace

void register_probabilities_first(RuleRegistry& registry) {
  registry.add(std::make_unique<ProbabilitiesFirst>());
}

} // namespace kvopt::rules
