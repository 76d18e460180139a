// PassRegistry and the shared body of passes that apply rules.
#include "passes/pass.h"
#include "passes/analysis/evaluation/unseen_caches.h"

#include "passes/analysis/cache/site_hints.h"
#include "passes/pattern/rule_driver.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace kvopt::passes {
using namespace analysis;
using namespace ir;
using namespace pattern;

PassContext::PassContext(const RuleRegistry& ruleRegistry,
                         const targets::TargetRegistry& targetRegistry)
    : rules(ruleRegistry), targets(targetRegistry) {}
PassContext::~PassContext() = default;

const char RefusedError::ID = 0;

std::string FreedExtents::str() const {
  llvm::SmallVector<std::string, 3> names;
  if (hasBatch())
    names.push_back(symbols.batch.str());
  if (hasTokens())
    names.push_back(symbols.tokens.str());
  if (hasPast())
    names.push_back(symbols.past.str());
  if (names.size() < 2)
    return names.empty() ? "" : names.front();
  const std::string last = names.pop_back_val();
  return llvm::join(names, ", ") + " and " + last;
}

void PassContext::restart(llvm::StringSet<> nodes) {
  whole = {std::move(*exported), std::move(*manifest), history.attendedPasts()};
  leftAlone = std::move(nodes);
  journal.entries.clear();
  statistics.clear();
  assumptions.clear();
  unreadFlag.reset();
  hiddenRowsUndefined = false;
  unpaddedMasks.clear();
  sites.clear();
  history = {};
  reorder.clear();
  interface = {.given = std::move(interface.given)};
  exportedAttention.reset();
  outputsMadeCaches.clear();
  hasFirstStep = false;
  freed.reset();
  manifest.reset();
  exported.reset();
  lowered.clear();
}

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

SiteList explainedSites(Model& model, const PassContext& context) {
  SiteList sites = findSites(model.graph());
  refuseUnseenCaches(model.graph(), context.interface, sites);
  if (context.nearMisses)
    attributeNearMisses(sites, *context.nearMisses, [&](llvm::StringRef rule) {
      const RuleRegistry::Entry* entry = context.rules.find(rule);
      return entry && entry->rule->group() == RuleGroup::Raise;
    });
  addShapeHints(model.graph(), sites);
  return sites;
}

llvm::Error applyRuleList(Model& model, llvm::ArrayRef<const RuleRegistry::Entry*> rules,
                          llvm::StringRef passName, PassContext& context) {
  llvm::SmallVector<const RuleRegistry::Entry*, 16> enabled;
  for (const RuleRegistry::Entry* entry : rules)
    if (!llvm::is_contained(context.disabledRules, entry->rule->name()))
      enabled.push_back(entry);
  RuleDriverOptions options;
  options.matcher = context.matcher;
  options.nearMisses = context.nearMisses;
  options.leftAlone = &context.leftAlone;
  size_t journaled = context.journal.entries.size();
  // The definitions of kvopt's operators are found only if their domain is imported.
  bool isImported = model.opsets.count(kvoptDomain) != 0;
  model.opsets.try_emplace(kvoptDomain, 1);
  auto result = applyRulesWithSubgraphs(model.graph(), enabled, context.journal, options);
  bool isNeeded = isImported;
  for (size_t i = journaled; i < context.journal.entries.size(); ++i) {
    const JournalEntry& entry = context.journal.entries[i];
    context.count(passName, entry.rule);
    isNeeded |= llvm::any_of(entry.created, [](llvm::StringRef created) {
      return OpName(created.split(' ').first).domain() == kvoptDomain;
    });
  }
  if (!isNeeded)
    model.opsets.erase(kvoptDomain);
  else if (!isImported)
    model.markEdited();
  if (!result)
    return result.takeError();
  if (result->gaveUp != 0)
    context.count(passName, reasonName(ReasonCode::StepBudget), result->gaveUp);
  return llvm::Error::success();
}

namespace {

class RuleGroupPass final : public Pass {
public:
  RuleGroupPass(std::string passName, RuleGroup ruleGroup)
      : name(std::move(passName)), group(ruleGroup) {}

  llvm::Error run(Model& model, PassContext& context) override {
    llvm::SmallVector<const RuleRegistry::Entry*, 16> rules;
    for (const RuleRegistry::Entry& entry : context.rules.all())
      if (entry.rule->group() == group)
        rules.push_back(&entry);
    return applyRuleList(model, rules, name, context);
  }

private:
  std::string name;
  RuleGroup group;
};

} // namespace

void addRuleGroupPass(PassRegistry& registry, std::string name, std::string summary,
                      RuleGroup group) {
  auto make = [name, group](const PassOptions&) -> llvm::Expected<std::unique_ptr<Pass>> {
    return std::make_unique<RuleGroupPass>(name, group);
  };
  registry.add({std::move(name), std::move(summary), {}, make});
}

} // namespace kvopt::passes
