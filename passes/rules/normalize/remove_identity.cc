// Replaces an Identity by its operand. An Identity that makes a graph input or another output a
// second output remains, because its name is part of the model's interface.
//
//   before   y = Identity(x)
//   after    y = x
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace pattern;

namespace {

class RemoveIdentity final : public Rule {
  Var x{"x"};

public:
  llvm::StringRef name() const override { return "remove-identity"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("Identity", {x}); }

  void constraints(Constraints& c) const override {
    c.require("an Identity that does not name an output", [this](const Match& match) {
      return !match.root().result().isGraphOutput() ||
             (match[x].producer() && !match[x].isGraphOutput() &&
              &match[x].graph() == &match.root().graph());
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    return rewriter.replace(match.root().result(), match[x]);
  }
};

} // namespace

void register_remove_identity(RuleRegistry& registry) {
  registry.add(std::make_unique<RemoveIdentity>());
}

} // namespace kvopt::rules
