// kvopt inspect: every cache and attention site, and what each target could do with it; for several
// models a table with a row each.
#include "cli/report/byte_text.h"
#include "cli/report/site_table.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "cli/support/style.h"
#include "driver/forms/form_table.h"
#include "driver/inspect/site_facts.h"
#include "driver/inspect/unmatched_caches.h"
#include "driver/recover.h"
#include "passes/analysis/cache/site_words.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include <CLI/CLI.hpp>

#include <map>

namespace kvopt::cli {
using namespace analysis;
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace targets;

namespace {

struct InspectOptions {
  std::vector<std::string> models;
  int64_t context = 4096;
};

/// Bytes of one cache at a context length, for one sequence; nullopt when an extent is unknown.
std::optional<int64_t> cacheBytes(const SiteCache& update, int64_t context) {
  const TensorType& type = update.past->type();
  std::optional<unsigned> width = byteWidth(type.elementType());
  if (!width || !type.hasRank())
    return std::nullopt;
  int64_t bytes = *width;
  for (unsigned axis = 1; axis < type.rank(); ++axis) {
    std::optional<int64_t> extent = type.shape()[axis].value();
    if (!extent && axis == update.axis)
      extent = context;
    if (!extent || __builtin_mul_overflow(bytes, *extent, &bytes))
      return std::nullopt;
  }
  return bytes;
}

/// What the cache is a part of; null if it is none.
const ManifestPart* partOf(const Value* past, const CacheParts& parts) {
  auto found = past ? parts.find(past->name().str()) : parts.end();
  return found == parts.end() ? nullptr : &found->second.part;
}

OrderedJson siteJson(const AttentionSite& site, const CacheParts& parts) {
  OrderedJson json;
  json["id"] = site.id();
  json["layer"] = site.layer;
  json["kind"] = siteKindName(site).str();
  json["status"] = site.isMatched() ? "matched" : "missed";
  json["reason"] = site.failure ? OrderedJson(reasonName(site.failure->code).str()) : nullptr;
  json["detail"] = site.failure ? site.failure->str() : "";
  json.update(factsJson(site));
  // A cache that holds several in one is named as the file does.
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

struct Capability {
  unsigned can = 0;
  std::map<std::string, unsigned> reasons;
};

std::map<std::string, Capability> capabilities(const RecoveredModel& recovered,
                                               const Toolkit& toolkit) {
  std::map<std::string, Capability> result;
  for (const std::unique_ptr<Target>& target : toolkit.targets.all()) {
    Capability& capability = result[target->name().str()];
    for (const auto& failure :
         refusals(*target, recovered.context->sites, *recovered.model, recovered.context->reorder))
      if (failure)
        ++capability.reasons[reasonName(failure->code).str()];
      else
        ++capability.can;
  }
  return result;
}

/// The options that choose a target's form; those of a program's own targets are not in the table.
std::string formOf(const std::string& target) {
  auto form = presetForm(target);
  if (form)
    return optionsOf(*form);
  llvm::consumeError(form.takeError());
  return "--to " + target;
}

void printText(const std::string& path, const InspectOptions& options,
               const RecoveredModel& recovered, const Toolkit& toolkit, const Style& style) {
  const SiteList& sites = recovered.context->sites;
  const CacheParts& parts = recovered.context->history.parts;
  SafeText out =
      formatText("{}  opset {} · {} attention sites\n", path, recovered.opset, sites.size());
  if (!recovered.writtenFor.empty())
    out += formatText("  written by kvopt for '{}'\n", recovered.writtenFor);
  for (const std::string& sentence : recovered.context->unequalExtents)
    out += formatText("  {}\n", sentence);
  for (const std::string& assumption : recovered.context->assumptions)
    out += formatText("  assumes {}\n", assumption);
  int64_t total = 0;
  bool known = true;
  for (const AttentionSite& site : sites) {
    if (!site.isMatched()) {
      out += formatText("  {:<4} {:<6} {}   {}\n", site.id(), siteKindName(site),
                        style.bad("MISSED"), site.failure->str());
      continue;
    }
    std::string cache = "no cache";
    if (site.hasCache()) {
      cache = site.key->past->type().str();
      if (!site.isLatent())
        cache += " + " + site.value->past->type().str();
      const ManifestPart* key = partOf(site.key->past, parts);
      const ManifestPart* value = partOf(site.value->past, parts);
      if (key && value)
        cache += fmt::format(", {} + {}", key->text(key->past), value->text(value->past));
      auto keyBytes = cacheBytes(*site.key, options.context);
      auto valueBytes = cacheBytes(*site.value, options.context);
      known &= keyBytes && valueBytes;
      // Another branch, or another site, updates the same caches.
      if (!site.key->fromStart && !site.owner)
        total += keyBytes.value_or(0) + (site.isLatent() ? 0 : valueBytes.value_or(0));
    }
    out +=
        formatText("  {:<4} {:<6} {}  {}/{}×{}  mask {}  {}  {}\n", site.id(), siteKindName(site),
                   style.good("matched"), site.queryHeads.str(), site.keyHeads.str(),
                   site.keyWidth.str(), maskKind(*site.node), cache, site.rule);
  }
  if (known && total != 0)
    out +=
        formatText("  caches: {} per sequence at context {}\n", byteText(total), options.context);
  for (const UnmatchedCaches& caches : unmatchedCaches(recovered.model->graph(), sites)) {
    out += formatText("  other caches: {} of {}{}", caches.count, dtypeName(caches.element),
                      caches.extents);
    if (caches.bytesPerToken)
      out += formatText(", {} per token", byteText(*caches.bytesPerToken));
    out += "\n";
  }
  if (contextRotationsOf(recovered))
    out += formatText("  context shift: yes\n");
  else
    out += formatText("  context shift: no, {}\n", recovered.context->shiftFailure->str());
  for (const auto& [name, capability] : capabilities(recovered, toolkit)) {
    out += formatText("  {}: {} of {} sites", formOf(name), capability.can, sites.size());
    for (const auto& [reason, count] : capability.reasons)
      out += formatText("; {} {}", count, reason);
    out += "\n";
  }
  printOut(out);
}

/// The facts of one model, without the schema.
OrderedJson modelJson(const std::string& path, const RecoveredModel& recovered,
                      const Toolkit& toolkit) {
  OrderedJson json;
  json["model"] = path;
  json["ir_version"] = recovered.model->irVersion;
  json["opsets"] = OrderedJson::object();
  for (const auto& [domain, version] : recovered.opsets)
    json["opsets"][domain.empty() ? "ai.onnx" : domain] = version;
  json["written_for"] =
      recovered.writtenFor.empty() ? OrderedJson(nullptr) : OrderedJson(recovered.writtenFor);
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
                             {"reasons", capability.reasons}};
  return json;
}

llvm::Expected<RecoveredModel> recover(const std::string& path, const Toolkit& toolkit) {
  NearMissList misses = listenToRaising(toolkit);
  RecoveryOptions options;
  options.nearMisses = &misses;
  options.restoresCaches = true;
  auto recovered = recoverModel(path, toolkit, options);
  if (recovered)
    recovered->context->nearMisses = nullptr;
  return recovered;
}

llvm::Expected<ExitCode> inspectOne(const InspectOptions& options, const CommandContext& context) {
  const std::string& path = options.models.front();
  auto recovered = recover(path, context.toolkit);
  if (!recovered)
    return recovered.takeError();
  context.detailPasses(recovered->timings);
  if (!context.common.json()) {
    printText(path, options, *recovered, context.toolkit, Style(context.common));
    return context.finish(ExitCode::Done);
  }
  OrderedJson json;
  json["schema"] = "kvopt/inspect/1";
  json.update(modelJson(path, *recovered, context.toolkit));
  printJson(json);
  return context.finish(ExitCode::Done);
}

/// Every model that can be read, whatever the others are.
ExitCode inspectMany(const InspectOptions& options, const CommandContext& context) {
  ExitCode code = ExitCode::Done;
  OrderedJson models = OrderedJson::array();
  std::vector<std::string> names = tableNames(options.models);
  if (!context.common.json())
    printOut(tableHead());
  for (size_t i = 0; i < options.models.size(); ++i) {
    const std::string& path = options.models[i];
    auto recovered = recover(path, context.toolkit);
    if (!recovered) {
      Diagnostic diagnostic = takeDiagnostic(recovered.takeError());
      code = ExitCode::BadInput;
      context.error("kvopt: error: " + diagnostic.text());
      models.push_back({{"model", path}, {"error", diagnostic.str()}});
      if (!context.common.json())
        printOut(tableErrorRow(names[i]));
    } else if (context.common.json()) {
      models.push_back(modelJson(path, *recovered, context.toolkit));
    } else {
      printOut(tableRow(names[i], recovered->context->sites));
    }
  }
  if (context.common.json())
    printJson({{"schema", "kvopt/inspect/1"}, {"models", models}});
  return code;
}

llvm::Expected<ExitCode> inspect(const InspectOptions& options, const CommandContext& context) {
  if (options.models.size() == 1)
    return inspectOne(options, context);
  return inspectMany(options, context);
}

} // namespace

void addInspectCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = addCommand(app, Command::Inspect);
  CommandOptions add(*command, context, Command::Inspect);
  add.add("models", options->models);
  add.add("--context", options->context);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return inspect(*options, context); };
  });
}

} // namespace kvopt::cli
