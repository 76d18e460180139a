// PassRegistry and the body that rule-applying passes share.
#include "passes/pass.h"

#include "passes/rule_driver.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {

void PassRegistry::add(PassInfo info) {
  assert(!find(info.name) && "pass names are unique");
  infos.push_back(std::move(info));
}

const PassInfo* PassRegistry::find(llvm::StringRef name) const {
  for (const PassInfo& info : infos)
    if (info.name == name)
      return &info;
  return nullptr;
}

llvm::Error applyRuleList(Model& model, llvm::ArrayRef<const RuleRegistry::Entry*> rules,
                          llvm::StringRef passName, PassContext& context) {
  llvm::SmallVector<const RuleRegistry::Entry*, 16> enabled;
  for (const RuleRegistry::Entry* entry : rules)
    if (!llvm::is_contained(context.disabledRules, entry->rule->name()))
      enabled.push_back(entry);
  RuleDriverOptions options;
  options.nearMisses = context.nearMisses;
  size_t journaled = context.journal.entries.size();
  auto result = applyRules(model.graph(), enabled, context.journal, options);
  if (!result)
    return result.takeError();
  for (size_t i = journaled; i < context.journal.entries.size(); ++i)
    context.count(passName, context.journal.entries[i].rule);
  return llvm::Error::success();
}

llvm::Error applyRuleGroup(Model& model, RuleGroup group, llvm::StringRef passName,
                           PassContext& context) {
  llvm::SmallVector<const RuleRegistry::Entry*, 16> rules;
  for (const RuleRegistry::Entry& entry : context.rules.all())
    if (entry.rule->group() == group)
      rules.push_back(&entry);
  return applyRuleList(model, rules, passName, context);
}

} // namespace kvopt
