// Facts of a model as JSON.
#include "driver/inspect/model_json.h"

#include "driver/inspect/site_facts.h"
#include "driver/inspect/unmatched_caches.h"
#include "ir/manifest/field_table.h"
#include "passes/analysis/cache/site_words.h"
#include "support/format.h"
#include "support/json.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

const ManifestPart* partOf(const Value* past, const CacheParts& parts) {
  auto found = past ? parts.find(past->name().str()) : parts.end();
  return found == parts.end() ? nullptr : &found->second.part;
}

namespace {

OrderedJson siteJson(const AttentionSite& site, const CacheParts& parts) {
  OrderedJson json;
  json["id"] = site.id();
  json["layer"] = site.layer;
  json["kind"] = siteKindName(site).str();
  json["status"] = site.isMatched() ? "matched" : "missed";
  json["reason"] = site.failure ? OrderedJson(reasonName(site.failure->code).str()) : nullptr;
  json["detail"] = site.failure ? site.failure->str() : "";
  json.update(factsJson(site));
  // A joint cache has the name that it has in the file.
  const auto name = [&](const Value* past, const Value* value,
                        std::string ManifestPart::*whole) -> OrderedJson {
    const ManifestPart* part = partOf(past, parts);
    return value ? OrderedJson(part ? part->*whole : value->name().str()) : OrderedJson(nullptr);
  };
  const auto past = [](const std::optional<SiteCache>& cache) {
    return cache ? cache->past : nullptr;
  };
  const auto present = [](const std::optional<SiteCache>& cache) {
    return !cache ? nullptr : cache->output ? cache->output : cache->present;
  };
  json["past_key"] = name(past(site.key), past(site.key), &ManifestPart::past);
  json["past_value"] = name(past(site.value), past(site.value), &ManifestPart::past);
  json["present_key"] = name(past(site.key), present(site.key), &ManifestPart::present);
  json["present_value"] = name(past(site.value), present(site.value), &ManifestPart::present);
  if (const ManifestPart* part = partOf(past(site.key), parts))
    json["key_part"] = part->text(part->past);
  if (const ManifestPart* part = partOf(past(site.value), parts))
    json["value_part"] = part->text(part->past);
  json["rule"] = site.rule.empty() ? OrderedJson(nullptr) : OrderedJson(site.rule);
  return json;
}

} // namespace

std::map<std::string, Capability> capabilities(const RecoveredModel& recovered,
                                               const Toolkit& toolkit) {
  std::map<std::string, Capability> result;
  for (const std::unique_ptr<Target>& target : toolkit.targets.all()) {
    Capability& capability = result[target->name().str()];
    const SiteList& sites = recovered.context->sites;
    const auto failures = refusals(*target, sites, *recovered.model, recovered.context->reorder);
    capability.can = static_cast<unsigned>(
        llvm::count_if(failures, [](const auto& failure) { return !failure; }));
    for (const AttentionSite& site : sites)
      if (failures[site.layer] && capability.can != 0 && mayStay(*target, site))
        ++capability.left;
      else if (failures[site.layer])
        ++capability.reasons[reasonName(failures[site.layer]->code).str()];
  }
  return result;
}

llvm::Expected<RecoveredModel> recoverForInspection(const ModelSource& source,
                                                    const Toolkit& toolkit) {
  NearMissList misses = listenToRaising(toolkit);
  RecoveryOptions options;
  options.nearMisses = &misses;
  options.restoresCaches = true;
  auto recovered = recoverModel(source, toolkit, options);
  if (recovered)
    recovered->context->nearMisses = nullptr;
  return recovered;
}

OrderedJson modelJson(const std::string& path, const RecoveredModel& recovered,
                      const Recommendation& recommendation, const Toolkit& toolkit) {
  OrderedJson json;
  json["model"] = path;
  json["ir_version"] = recovered.model->irVersion;
  json["opsets"] = OrderedJson::object();
  for (const auto& [domain, version] : recovered.opsets)
    json["opsets"][domain.empty() ? "ai.onnx" : domain] = version;
  json["written_for"] =
      recovered.writtenFor.empty() ? OrderedJson(nullptr) : OrderedJson(recovered.writtenFor);
  if (recovered.comparison)
    json["comparison"] = valueJson(*recovered.comparison);
  json["assumptions"] = recovered.context->assumptions;
  if (!recovered.context->unequalExtents.empty())
    json["unequal_extents"] = recovered.context->unequalExtents;
  json["sites"] = OrderedJson::array();
  for (const AttentionSite& site : recovered.context->sites)
    json["sites"].push_back(siteJson(site, recovered.context->history.parts));
  json["other_caches"] = OrderedJson::array();
  for (const UnmatchedCaches& caches :
       unmatchedCaches(recovered.model->graph(), recovered.context->sites))
    json["other_caches"].push_back(
        {{"count", caches.count},
         {"dtype", dtypeName(caches.element)},
         {"extents", caches.extents},
         {"bytes_per_token",
          caches.bytesPerToken ? OrderedJson(*caches.bytesPerToken) : OrderedJson(nullptr)}});
  const bool canShift = contextRotationsOf(recovered).has_value();
  json["context_shift"] = {
      {"can", canShift},
      {"reason", canShift ? OrderedJson(nullptr)
                          : OrderedJson(reasonName(recovered.context->shiftFailure->code).str())},
      {"detail", canShift ? "" : recovered.context->shiftFailure->str()}};
  json["targets"] = OrderedJson::object();
  for (const auto& [name, capability] : capabilities(recovered, toolkit))
    json["targets"][name] = {{"can", capability.can},
                             {"of", recovered.context->sites.size()},
                             {"left", capability.left},
                             {"reasons", capability.reasons}};
  json["recommendation"] = {{"text", recommendation.sentence},
                            {"command", recommendation.command.empty()
                                            ? OrderedJson(nullptr)
                                            : OrderedJson(recommendation.command)}};
  return json;
}

OrderedJson inspectionJson(const std::string& path, const RecoveredModel& recovered,
                           const Recommendation& recommendation, const Toolkit& toolkit) {
  OrderedJson json;
  json["schema"] = "kvopt/inspect/1";
  json.update(modelJson(path, recovered, recommendation, toolkit));
  return json;
}

} // namespace kvopt::driver
