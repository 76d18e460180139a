// Removes a Cast to the type that its operand already has.
//
//   before   y = Cast<to = float>(x)      (x is float)
//   after    y = x
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class RemoveNoopCast final : public Rule {
  Var x{"x"};

public:
  llvm::StringRef name() const override { return "remove-noop-cast"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("Cast", {x}); }

  void constraints(Constraints& c) const override {
    c.require("the operand has the type that is cast to", [this](const Match& match) {
      ElementType type = match[x].type().elementType();
      return type != ElementType::Undefined &&
             match.root().intAttr("to", 0) == static_cast<int64_t>(type);
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    return rewriter.replace(match.root().result(), match[x]);
  }
};

} // namespace

void register_remove_noop_cast(RuleRegistry& registry) {
  registry.add(std::make_unique<RemoveNoopCast>());
}

} // namespace kvopt::rules
