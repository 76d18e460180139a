// Removes a multiplication or division by 1.
//
//   before   y = Mul(x, 1)      y = Div(x, 1)
//   after    y = x
//
// The operand 1 must not add axes: [1,1] turns a vector into a matrix.
#include "passes/pattern/rule.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class RemoveUnitScale final : public Rule {
  Var x{"x"}, factor{"factor"};

public:
  llvm::StringRef name() const override { return "remove-unit-scale"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    return oneOf("", {{"mul", commutative("Mul", {x, constant(factor)})},
                      {"div", op("Div", {x, constant(factor)})}});
  }

  void constraints(Constraints& c) const override {
    c.require("the factor is a single 1", [this](const Match& match) { return isOne(match); });
    c.require("the factor has no more axes than the other operand", [this](const Match& match) {
      size_t axes = match[factor].constant()->shape().size();
      return axes == 0 || (match[x].type().hasRank() && axes <= match[x].type().rank());
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    return rewriter.replace(match.root().result(), match[x]);
  }

private:
  bool isOne(const Match& match) const {
    const TensorData& data = *match[factor].constant();
    if (data.elementCount() != 1)
      return false;
    if (isInteger(data.elementType())) {
      auto integers = integerValues(data, 1);
      return integers && integers->front() == 1;
    }
    auto reals = floatValues(data, 1);
    return reals && reals->front() == 1.0;
  }
};

} // namespace

void register_remove_unit_scale(RuleRegistry& registry) {
  registry.add(std::make_unique<RemoveUnitScale>());
}

} // namespace kvopt::rules
