// Replaces a softmax written as a quotient, or with logarithms, by Softmax.
//
//   before   p = Div(e, ReduceSum<axis, keepdims = 1>(e))              e = Exp(x)
//            p = Mul(e, Reciprocal(ReduceSum<axis, keepdims = 1>(e)))
//            p = Exp(Sub(x, Log(ReduceSum<axis, keepdims = 1>(e))))
//            p = Exp(Sub(x, ReduceLogSumExp<axis, keepdims = 1>(x)))
//   after    p = Softmax<axis>(x)
//
// Exponentials that are shifted by the largest element along the axis, e = Exp(Sub(x,
// ReduceMax(x))), give the same quotients.
#include "ir/movement.h"
#include "passes/pattern/rule.h"

#include <optional>

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class QuotientToSoftmax final : public Rule {
  Var x{"x"}, shifted{"shifted"}, exponentials{"exponentials"};

public:
  llvm::StringRef name() const override { return "quotient-to-softmax"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    P peak = reduced("ReduceMax", x);
    P operand = bind(shifted, oneOf("shift", {{"peak", inner(op("Sub", {x, peak}))}, {"none", x}}));
    P weights = inner(bind(exponentials, op("Exp", {operand})));
    P total = reduced("ReduceSum", exponentials);
    P totalFirst = reduced("ReduceSum", weights);
    P logarithm =
        oneOf("logarithm",
              {{"sum", inner(op("Log", {reduced("ReduceSum", inner(op("Exp", {shifted})))}))},
               {"operator", reduced("ReduceLogSumExp", shifted)}});
    return oneOf("spelling", {{"quotient", op("Div", {weights, total})},
                              {"product", op("Mul", {weights, inner(op("Reciprocal", {total}))})},
                              {"product-first",
                               op("Mul", {inner(op("Reciprocal", {totalFirst})), exponentials})},
                              {"logarithm", op("Exp", {inner(op("Sub", {operand, logarithm}))})}});
  }

  void constraints(Constraints& c) const override {
    c.require(
        "reductions that keep one axis, the same one",
        [this](const Match& match) { return axisOf(match).has_value(); },
        ReasonCode::PatternMismatch);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& softmax = rewriter.create("Softmax", {&match[x]}, attrs({{"axis", *axisOf(match)}}), 1,
                                    "probabilities");
    return rewriter.replace(match.root().result(), softmax.result());
  }

private:
  /// Values that have other readers stay alive.
  static P inner(P pattern) { return escaping(std::move(pattern)); }

  static P reduced(const char* name, const P& operand) {
    return optional(inner(op(name, {operand})), inner(op(name, {operand, any()})));
  }

  /// The one axis of all reductions in the match; nullopt if there is no such axis, if it is not
  /// kept, or if Softmax would include all later axes.
  std::optional<int64_t> axisOf(const Match& match) const {
    const TensorType& type = match[x].type();
    std::optional<int64_t> axis;
    for (const Node* node : match.nodes()) {
      if (node->op().str().rfind("Reduce", 0) != 0)
        continue;
      const auto reduced = reducedAxis(*node, type);
      if (!reduced || (axis && axis != reduced))
        return std::nullopt;
      axis = reduced;
    }
    const bool isLast = axis && *axis + 1 == static_cast<int64_t>(type.rank());
    return isLast || match.root().graph().opsetVersion() >= 13 ? axis : std::nullopt;
  }

  static std::optional<int64_t> reducedAxis(const Node& node, const TensorType& type) {
    if (!type.hasRank() || node.intAttr("keepdims", 1) == 0)
      return std::nullopt;
    auto axes = knownIntegersOf(node, 1, "axes");
    if (!axes || axes->size() != 1)
      return std::nullopt;
    const int64_t axis =
        axes->front() < 0 ? axes->front() + static_cast<int64_t>(type.rank()) : axes->front();
    return axis >= 0 && axis < static_cast<int64_t>(type.rank()) ? std::optional(axis)
                                                                 : std::nullopt;
  }
};

} // namespace

void register_quotient_to_softmax(RuleRegistry& registry) {
  registry.add(std::make_unique<QuotientToSoftmax>());
}

} // namespace kvopt::rules
