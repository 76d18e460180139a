// RuleRegistry.
#include "passes/pattern/rule.h"

namespace kvopt::pattern {

llvm::StringRef ruleGroupName(RuleGroup group) {
  switch (group) {
  case RuleGroup::Normalize:
    return "normalize";
  case RuleGroup::Raise:
    return "raise";
  case RuleGroup::Strip:
    return "strip";
  case RuleGroup::Fuse:
    return "fuse";
  }
  return "";
}

void RuleRegistry::add(std::unique_ptr<Rule> rule) {
  assert(!find(rule->name()) && "rule names are unique");
  Constraints constraints;
  rule->constraints(constraints);
  auto pattern = std::make_unique<CompiledPattern>(rule->pattern(), std::move(constraints));
  entries.push_back({std::move(rule), std::move(pattern)});
}

const RuleRegistry::Entry* RuleRegistry::find(llvm::StringRef name) const {
  for (const Entry& entry : entries)
    if (entry.rule->name() == name)
      return &entry;
  return nullptr;
}

} // namespace kvopt::pattern
