// Recovery with a list of near misses, and those near misses that concern attention.
#include "driver/explain/explanation.h"

#include "driver/forms/form_table.h"
#include "passes/known_names.h"
#include "support/diagnostic.h"
#include "support/nearest_word.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

namespace {

llvm::StringMap<const Node*> nodesByLabel(Graph& main) {
  llvm::StringMap<const Node*> nodes;
  forEachGraph(main, [&](Graph& graph) {
    for (const Node& node : graph.nodes())
      nodes.try_emplace(labelOf(node), &node);
  });
  return nodes;
}

} // namespace

std::vector<NearMiss> Explanation::ruleMisses() const {
  auto nodes = nodesByLabel(recovered.model->graph());
  std::vector<NearMiss> ranked = misses.ranked();
  llvm::erase_if(ranked, [&](const NearMiss& miss) {
    return miss.rule != rule->rule->name() || !nodes.count(miss.root);
  });
  return ranked;
}

std::vector<NearMiss> Explanation::attentionMisses() const {
  const PassContext& context = *recovered.context;
  llvm::StringSet<> reasons;
  for (const AttentionSite& site : context.sites)
    if (site.nearMiss)
      reasons.insert(site.nearMiss->rule + "\n" + site.nearMiss->root);
  auto nodes = nodesByLabel(recovered.model->graph());
  auto isSoftmax = [&](const std::string& label) {
    const Node* node = nodes.lookup(label);
    return node && (node->op() == "Softmax" || node->op() == "LogSoftmax" || node->op() == "Exp");
  };
  std::vector<NearMiss> ranked = misses.ranked();
  llvm::erase_if(ranked, [&](const NearMiss& miss) {
    const RuleRegistry::Entry* entry = context.rules.find(miss.rule);
    bool raises = entry && entry->rule->group() == RuleGroup::Raise;
    bool isReason = reasons.contains(miss.rule + "\n" + miss.root);
    return !raises || !nodes.count(miss.root) ||
           (!isReason && llvm::none_of(miss.nodes, isSoftmax));
  });
  return ranked;
}

std::map<std::string, int64_t> Explanation::givenUp() const {
  std::map<std::string, int64_t> counts;
  for (const auto& [pass, counters] : recovered.context->statistics) {
    auto found = counters.find(reasonName(ReasonCode::StepBudget).str());
    if (found != counters.end())
      counts[pass] = found->second;
  }
  return counts;
}

namespace {

/// Evaluates the first layer of each group. Rows that were rebuilt from evaluation would only
/// repeat its results, so in that case the model is recovered again without them.
llvm::Error addFacts(const ModelSource& source, RecoveryOptions recovery, const Toolkit& toolkit,
                     Explanation& explanation) {
  const PassContext& context = *explanation.recovered.context;
  const auto counters = context.statistics.find("respell-caches");
  const bool isRespelled = counters != context.statistics.end() &&
                           llvm::any_of(counters->second, [](const auto& counter) {
                             return counter.first == "respelled" && counter.second != 0;
                           });
  if (isRespelled) {
    recovery.nearMisses = nullptr;
    recovery.disabled.emplace_back("respell-caches");
    auto spelled = recoverModel(source, toolkit, recovery);
    if (!spelled)
      return spelled.takeError();
    explanation.spelled = std::make_unique<RecoveredModel>(std::move(*spelled));
  }
  const RecoveredModel& evaluated =
      explanation.spelled ? *explanation.spelled : explanation.recovered;
  const SiteList& sites = evaluated.context->sites;
  rows::CacheFacts facts(evaluated.model->graph(), evaluated.context->interface);
  for (const SiteGroup& group : explanation.groups) {
    if (sites.size() == context.sites.size()) {
      explanation.facts.push_back(facts.of(sites[group.first->layer]));
      continue;
    }
    rows::AttentionFacts unknown;
    unknown.missing = "the exported attention is not found";
    explanation.facts.push_back(std::move(unknown));
  }
  return llvm::Error::success();
}

} // namespace

llvm::Error readForm(const FormWords& words, ExplainRequest& request) {
  if (!words.chooseForm())
    return llvm::Error::success();
  auto forms = chooseForms(words);
  if (!forms)
    return forms.takeError();
  request.form = forms->front();
  return llvm::Error::success();
}

llvm::Expected<Explanation> explain(const ModelSource& source, const ExplainRequest& request,
                                    const Toolkit& toolkit) {
  Explanation explanation;
  if (request.form) {
    auto choice = targetFor(*request.form, toolkit.targets);
    if (!choice)
      return choice.takeError();
    explanation.form = request.form;
    explanation.target = choice->target;
  }
  explanation.rule = toolkit.rules.find(request.rule);
  if (!request.rule.empty() && !explanation.rule)
    return usageError("there is no rule '{}'{}", request.rule,
                      didYouMean(request.rule, ruleNames(toolkit.rules)))
        .hint("kvopt list rules");
  explanation.misses =
      listenToRaising(toolkit, explanation.rule ? std::vector<std::string>{request.rule}
                                                : std::vector<std::string>());
  RecoveryOptions recovery;
  recovery.matcher = request.matcher;
  recovery.disabled = request.disabled;
  recovery.nearMisses = &explanation.misses;
  recovery.restoresCaches = true;
  auto recovered = recoverModel(source, toolkit, recovery);
  if (!recovered)
    return recovered.takeError();
  explanation.recovered = std::move(*recovered);
  // Only recovery reports near misses.
  explanation.recovered.context->nearMisses = nullptr;
  const size_t sites = explanation.recovered.context->sites.size();
  if (request.layer && *request.layer >= sites)
    return noSuchLayer(*request.layer, sites);
  explanation.groups = groupSites(explanation.recovered, explanation.target, request.layer);
  if (llvm::Error error = addFacts(source, recovery, toolkit, explanation))
    return error;
  return explanation;
}

} // namespace kvopt::driver
