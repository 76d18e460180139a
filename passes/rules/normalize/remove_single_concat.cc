// Replaces a concatenation of one part by the part. Merged decoders join "no past" and the new rows
// this way.
//
//   before   y = Concat<axis>(x)
//   after    y = x
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace pattern;

namespace {

class RemoveSingleConcat final : public Rule {
  Var x{"x"};

public:
  llvm::StringRef name() const override { return "remove-single-concat"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("Concat", {x}); }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    return rewriter.replace(match.root().result(), match[x]);
  }
};

} // namespace

void register_remove_single_concat(RuleRegistry& registry) {
  registry.add(std::make_unique<RemoveSingleConcat>());
}

} // namespace kvopt::rules
