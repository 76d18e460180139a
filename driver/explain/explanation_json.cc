// Attention layers, reasons and near misses as JSON.
#include "driver/explain/explanation_json.h"

#include "driver/explain/cache_words.h"
#include "driver/inspect/site_facts.h"
#include "passes/analysis/cache/site_words.h"
#include "support/json.h"

namespace kvopt::driver {
using namespace analysis;
using namespace passes;
using namespace pattern;

namespace {

OrderedJson missJson(const NearMiss& miss) {
  OrderedJson json = {{"rule", miss.rule},
                      {"root", miss.root},
                      {"matched", miss.matched},
                      {"path", miss.path},
                      {"nodes", miss.nodes}};
  json.update(reasonJson(miss.failure));
  return json;
}

OrderedJson evaluatedJson(const rows::AttentionFacts& facts) {
  const bool isEvaluated = facts.missing.empty();
  OrderedJson json;
  json["keys"] = isEvaluated ? cacheFactJson(facts.key) : OrderedJson(nullptr);
  json["values"] = isEvaluated ? cacheFactJson(facts.value) : OrderedJson(nullptr);
  json["missing"] = isEvaluated ? OrderedJson(nullptr) : OrderedJson(facts.missing);
  return json;
}

OrderedJson groupJson(const SiteGroup& group, const rows::AttentionFacts& facts,
                      const Explanation& explanation) {
  const AttentionSite& site = *group.first;
  OrderedJson json;
  json["id"] = layerRanges(group.layers);
  json["layers"] = group.layers;
  json["kind"] = siteKindName(site).str();
  json["status"] = site.isMatched() ? "matched" : "missed";
  json["rule"] = site.rule.empty() ? OrderedJson(nullptr) : OrderedJson(site.rule);
  json.update(factsJson(site));
  json["nodes"] = group.nodes;
  json["evaluated"] = evaluatedJson(facts);
  json["reason"] = site.failure ? reasonJson(*site.failure) : OrderedJson(nullptr);
  json["nearest"] = site.nearMiss ? missJson(*site.nearMiss) : OrderedJson(nullptr);
  if (explanation.target)
    json["target"] = {{"name", explanation.target->name().str()},
                      {"takes", !group.refusal.has_value()},
                      {"reason", group.refusal ? reasonJson(*group.refusal) : nullptr}};
  return json;
}

/// The applications of the rule, and its near misses.
OrderedJson ruleJson(const Explanation& explanation) {
  const Rule& rule = *explanation.rule->rule;
  OrderedJson json;
  json["name"] = rule.name().str();
  json["group"] = ruleGroupName(rule.group()).str();
  json["applied"] = OrderedJson::array();
  for (const JournalEntry& entry : explanation.recovered.context->journal.entries)
    if (entry.rule == rule.name())
      json["applied"].push_back(entry.root);
  json["near_misses"] = OrderedJson::array();
  for (const NearMiss& miss : explanation.ruleMisses())
    json["near_misses"].push_back(missJson(miss));
  return json;
}

} // namespace

OrderedJson explanationJson(const std::string& path, const Explanation& explanation) {
  OrderedJson json;
  json["schema"] = "kvopt/explain/1";
  json["model"] = path;
  json["sites"] = OrderedJson::array();
  for (const auto& pair : llvm::zip(explanation.groups, explanation.facts))
    json["sites"].push_back(groupJson(std::get<0>(pair), std::get<1>(pair), explanation));
  json["near_misses"] = OrderedJson::array();
  for (const NearMiss& miss : explanation.attentionMisses())
    json["near_misses"].push_back(missJson(miss));
  json["gave_up"] = explanation.givenUp();
  if (explanation.rule)
    json["rule"] = ruleJson(explanation);
  return json;
}

} // namespace kvopt::driver
