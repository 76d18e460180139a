// Names in the registries.
#include "passes/known_names.h"

#include "passes/pattern/rule.h"

namespace kvopt::passes {
using namespace pattern;

std::vector<std::string> ruleNames(const RuleRegistry& rules) {
  std::vector<std::string> names;
  for (const RuleRegistry::Entry& entry : rules.all())
    names.push_back(entry.rule->name().str());
  return names;
}

std::vector<std::string> passNames(const PassRegistry& passes) {
  std::vector<std::string> names;
  for (const PassInfo& pass : passes.all())
    names.push_back(pass.name);
  return names;
}

} // namespace kvopt::passes
