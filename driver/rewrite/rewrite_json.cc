// Rewrites as JSON.
#include "driver/rewrite/rewrite_json.h"

#include "driver/check/check_json.h"
#include "driver/engines/engine_facts.h"
#include "driver/inspect/site_facts.h"
#include "driver/rewrite/cache_bytes.h"
#include "passes/pass.h"
#include "support/json.h"

namespace kvopt::driver {
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

/// Bytes written to caches at a step of one token.
struct CopiedBytes {
  explicit CopiedBytes(const RewrittenModel& rewritten)
      : after(cacheBytesPerToken(rewritten.manifest, rewritten.model->graph(), reportedContext)) {
    // A model without caches copies no rows, but computes all tokens again.
    if (!rewritten.exported.caches.empty())
      before = cacheBytesPerToken(rewritten.exported, rewritten.model->graph(), reportedContext);
  }

  std::optional<int64_t> before;
  std::optional<int64_t> after;
};

OrderedJson heading(const std::string& output, const std::string& target) {
  OrderedJson json;
  json["schema"] = "kvopt/rewrite/1";
  json["output"] = output.empty() ? OrderedJson(nullptr) : OrderedJson(output);
  json["target"] = target;
  return json;
}

const char* placementName(WeightPlacement placement) {
  switch (placement) {
  case WeightPlacement::Link:
    return "link";
  case WeightPlacement::Copy:
    return "copy";
  case WeightPlacement::Inline:
    return "inline";
  case WeightPlacement::Keep:
    break;
  }
  return "keep";
}

OrderedJson weightsJson(const WeightFiles& weights) {
  if (!weights.placement)
    return nullptr;
  return {{"placement", placementName(*weights.placement)}, {"files", weights.files}};
}

} // namespace

OrderedJson rewriteJson(const std::string& output, const std::string& target,
                        const RewrittenModel& rewritten, const WeightFiles& weights) {
  auto bytes = [](std::optional<int64_t> count) {
    return count ? OrderedJson(*count) : OrderedJson(nullptr);
  };
  const PassContext& passes = *rewritten.passes;
  const ModelSize& before = rewritten.before;
  const ModelSize& after = rewritten.after;
  OrderedJson json = heading(output, target);
  json["sites"] = {{"rewritten", passes.lowered.size()}, {"total", passes.sites.size()}};
  OrderedJson left = OrderedJson::array();
  for (const LeftSite& site : passes.left) {
    left.push_back({{"layer", site.layer}, {"costs_nothing", site.costsNothing}});
    left.back().update(reasonJson(site.why));
  }
  json["left"] = std::move(left);
  json["assumptions"] = passes.assumptions;
  if (!passes.unequalExtents.empty())
    json["unequal_extents"] = passes.unequalExtents;
  if (!passes.outputsMadeCaches.empty())
    json["outputs_made_caches"] = passes.outputsMadeCaches;
  if (rewritten.calibrationTokens != 0)
    json["calibration_tokens"] = rewritten.calibrationTokens;
  if (!rewritten.freed.empty())
    json["symbols"] = {{"freed", rewritten.freed},
                       {"fixed_because", rewritten.fixedBecause.empty()
                                             ? OrderedJson(nullptr)
                                             : OrderedJson(rewritten.fixedBecause)}};
  json["ops"] = {{"before", before.ops}, {"after", after.ops}};
  const CopiedBytes copied(rewritten);
  json["cache_bytes_copied_per_token"] = {{"context", reportedContext},
                                          {"before", bytes(copied.before)},
                                          {"after", bytes(copied.after)}};
  if (rewritten.exported.caches.empty() && !rewritten.manifest.caches.empty())
    json["tokens_computed_per_step"] = {
        {"context", reportedContext}, {"before", reportedContext}, {"after", 1}};
  const auto allocated = allocatedCacheBytes(rewritten.manifest, reportedContext);
  json["cache_bytes"] = {{"context", reportedContext}, {"allocated", bytes(allocated)}};
  std::vector<std::string> warnings = engineNotes(rewritten.model->graph(), rewritten.otherForms);
  if (const std::string warning = rewritten.contradiction(); !warning.empty())
    warnings.push_back(warning);
  json["warnings"] = std::move(warnings);
  json["opset"] = {{"before", before.opset}, {"after", after.opset}};
  json["ir_version"] = {{"before", before.irVersion}, {"after", after.irVersion}};
  json["external_data"] = weightsJson(weights);
  json["millis"] = rewritten.milliseconds;
  json["verify"] = rewritten.verification ? rewritten.verification->json() : OrderedJson(nullptr);
  if (rewritten.checked)
    json["check"] = checkReportJson(*rewritten.checked);
  if (!rewritten.notVerified.empty())
    json["not_verified"] = rewritten.notVerified;
  return json;
}

OrderedJson unchangedJson(const std::string& output, const std::string& target,
                          const UnchangedModel& unchanged, const WeightFiles& weights) {
  const ModelSize& size = unchanged.size;
  OrderedJson json = heading(output, target);
  json["already"] = true;
  if (!unchanged.updatedBy.empty())
    json["updated_in_place_by"] = unchanged.updatedBy;
  if (unchanged.verification)
    json["verify"] = unchanged.verification->json();
  if (unchanged.checked)
    json["check"] = checkReportJson(*unchanged.checked);
  json["sites"] = {{"rewritten", 0}, {"total", 0}};
  json["ops"] = {{"before", size.ops}, {"after", size.ops}};
  json["opset"] = {{"before", size.opset}, {"after", size.opset}};
  json["ir_version"] = {{"before", size.irVersion}, {"after", size.irVersion}};
  json["external_data"] = weightsJson(weights);
  return json;
}

OrderedJson refusedJson(const std::string& target, const RefusedModel& refused) {
  OrderedJson reasons = OrderedJson::array();
  for (const RefusedSite& site : refused.sites) {
    OrderedJson reason = {{"id", site.id()}, {"layer", site.layer}};
    reason.update(reasonJson(site.failure));
    reasons.push_back(std::move(reason));
  }
  OrderedJson json = heading("", target);
  json["sites"] = {{"rewritten", 0}, {"total", refused.siteCount}};
  json["message"] = refused.message;
  json["refused"] = std::move(reasons);
  json["remedies"] = OrderedJson::array();
  for (const Remedy& remedy : refused.remedies)
    json["remedies"].push_back(
        {{"option", remedy.option}, {"condition", remedy.condition}, {"layers", remedy.layers}});
  return json;
}

} // namespace kvopt::driver
