// Applies single rules by name: for tests of one rule, and for bisecting.
//
//   apply-rules{rules=strip-gqa-broadcast+remove-identity}
#include "passes/known_names.h"
#include "passes/pass.h"
#include "support/diagnostic.h"
#include "support/nearest_word.h"

#include "llvm/ADT/SmallVector.h"

namespace kvopt::transforms {
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

class ApplyRules final : public Pass {
public:
  explicit ApplyRules(std::string list) : names(std::move(list)) {}

  llvm::Error run(Model& model, PassContext& context) override {
    llvm::SmallVector<llvm::StringRef, 4> wanted;
    llvm::StringRef(names).split(wanted, '+', -1, /*KeepEmpty=*/false);
    llvm::SmallVector<const RuleRegistry::Entry*, 4> rules;
    for (llvm::StringRef name : wanted) {
      const RuleRegistry::Entry* entry = context.rules.find(name);
      if (!entry)
        return usageError("there is no rule '{}'{}", name,
                          didYouMean(std::string_view(name), ruleNames(context.rules)))
            .hint("kvopt list rules");
      rules.push_back(entry);
    }
    return applyRuleList(model, rules, "apply-rules", context);
  }

private:
  std::string names;
};

} // namespace

void register_apply_rules(PassRegistry& registry) {
  registry.add({"apply-rules",
                "Applies the rules named in rules=a+b.",
                {"rules"},
                [](const PassOptions& options) -> llvm::Expected<std::unique_ptr<Pass>> {
                  auto rules = options.find("rules");
                  if (rules == options.end() || rules->second.empty())
                    return usageError("apply-rules needs rules=a+b");
                  return std::make_unique<ApplyRules>(rules->second);
                }});
}

} // namespace kvopt::transforms
