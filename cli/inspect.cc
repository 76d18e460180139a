// kvopt inspect: every cache and attention layer of a model, and the forms that accept it; for
// several models, a table with one row each.
#include "cli/report/byte_text.h"
#include "cli/report/site_table.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "cli/support/style.h"
#include "driver/check/check_files.h"
#include "driver/forms/form_table.h"
#include "driver/inspect/model_json.h"
#include "driver/inspect/site_facts.h"
#include "driver/inspect/site_groups.h"
#include "driver/inspect/unmatched_caches.h"
#include "driver/recover.h"
#include "driver/rewrite/recommendation.h"
#include "passes/analysis/cache/site_words.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/json.h"
#include "support/progress.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"

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

/// Bytes of one cache at a context length, for one sequence; nullopt if an extent is unknown.
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

/// The options that choose a target's form. The table does not have targets that a program has
/// added.
std::string formOf(const std::string& target) {
  auto form = presetForm(target);
  if (form)
    return optionsOf(*form);
  llvm::consumeError(form.takeError());
  return "--to " + target;
}

/// Past keys and values of a layer, with their types.
std::string cacheText(const AttentionSite& site, const CacheParts& parts) {
  if (!site.hasCache())
    return "no cache";
  std::string text = site.key->past->type().str();
  if (!site.isLatent())
    text += " + " + site.value->past->type().str();
  const ManifestPart* key = partOf(site.key->past, parts);
  const ManifestPart* value = partOf(site.value->past, parts);
  if (key && value)
    text += formatted(", {} + {}", key->text(key->past), value->text(value->past));
  return text;
}

/// Bytes of all caches at a context length, for one sequence; nullopt if an extent is unknown.
std::optional<int64_t> totalCacheBytes(const SiteList& sites, int64_t context) {
  int64_t total = 0;
  for (const AttentionSite& site : sites) {
    // Another branch, or another attention layer, updates the same caches.
    if (!site.isMatched() || !site.hasCache() || site.key->fromStart || site.owner)
      continue;
    const auto keyBytes = cacheBytes(*site.key, context);
    const auto valueBytes = cacheBytes(*site.value, context);
    if (!keyBytes || !valueBytes)
      return std::nullopt;
    total += *keyBytes + (site.isLatent() ? 0 : *valueBytes);
  }
  return total;
}

/// One line for each group of layers that differ only in names.
SafeText layerLines(const RecoveredModel& recovered, const Style& style) {
  SafeText out;
  for (const SiteGroup& group : groupSites(recovered, nullptr, std::nullopt)) {
    const AttentionSite& site = *group.first;
    const std::string layers = layerRanges(group.layers);
    if (site.isMatched())
      out += formatText("  {:<4}  {:<6} {}  {}/{}×{}  mask {}  {}\n", layers, siteKindName(site),
                        style.good("matched"), site.queryHeads.str(), site.keyHeads.str(),
                        site.keyWidth.str(), maskKind(*site.node),
                        cacheText(site, recovered.context->history.parts));
    else
      out += formatText("  {:<4}  {:<6} {}   {}\n", layers, siteKindName(site), style.bad("MISSED"),
                        site.failure->str());
  }
  return out;
}

/// One line for each group of forms that accept the same layers and refuse the others for the same
/// reasons.
SafeText formLines(const RecoveredModel& recovered, const Toolkit& toolkit) {
  std::vector<std::pair<std::string, std::string>> lines;
  const size_t total = recovered.context->sites.size();
  for (const auto& [name, capability] : capabilities(recovered, toolkit)) {
    std::string result = formatted("{} of {} layers", capability.can, total);
    if (capability.left != 0)
      result += formatted("; {} stay{} as exported, at no cost", capability.left,
                          capability.left == 1 ? "s" : "");
    for (const auto& [reason, count] : capability.reasons)
      result += formatted("; {} {}", count, reason);
    auto line = llvm::find_if(lines, [&](const auto& known) { return known.first == result; });
    if (line == lines.end())
      lines.emplace_back(result, formOf(name));
    else
      line->second += ", " + formOf(name);
  }
  llvm::stable_sort(lines, [](const auto& one, const auto& other) {
    return !startsWith(one.first, "0 ") && startsWith(other.first, "0 ");
  });
  // A single line without layers concerns all forms.
  if (lines.size() == 1 && startsWith(lines.front().first, "0 "))
    return formatText("  {}, whatever the form\n", lines.front().first);
  SafeText out;
  for (const auto& [result, forms] : lines)
    out += formatText("  {}: {}\n", result, forms);
  return out;
}

void printText(const std::string& path, const InspectOptions& options,
               const RecoveredModel& recovered, const Toolkit& toolkit, const Style& style) {
  const SiteList& sites = recovered.context->sites;
  const auto matched = static_cast<size_t>(
      llvm::count_if(sites, [](const AttentionSite& site) { return site.isMatched(); }));
  SafeText out = formatText("{}  opset {} · {} attention layer{}, {} matched\n", path,
                            recovered.opset, sites.size(), sites.size() == 1 ? "" : "s", matched);
  if (!recovered.writtenFor.empty())
    out += formatText("  written by kvopt for '{}'\n", recovered.writtenFor);
  if (recovered.comparison)
    out += formatText("  claimed to be {}\n", claimSentence(*recovered.comparison));
  const auto total = totalCacheBytes(sites, options.context);
  if (total.value_or(0) != 0)
    out +=
        formatText("  caches: {} per sequence at context {}\n", byteText(*total), options.context);
  out += layerLines(recovered, style);
  for (const UnmatchedCaches& caches : unmatchedCaches(recovered.model->graph(), sites)) {
    out += formatText("  other caches: {} of {}{}", caches.count, dtypeName(caches.element),
                      caches.extents);
    if (caches.bytesPerToken)
      out += formatText(", {} per token", byteText(*caches.bytesPerToken));
    out += "\n";
  }
  for (const std::string& sentence : recovered.context->unequalExtents)
    out += formatText("  {}\n", sentence);
  for (const std::string& assumption : recovered.context->assumptions)
    out += formatText("  assumes {}\n", assumption);
  // The recommendation is a command to copy, so it is not wrapped.
  const SafeText recommendation = formatText("{}\n", recommend(path, recovered, toolkit).text());
  if (sites.empty()) {
    printWrapped(out);
    return printOut(recommendation);
  }
  if (contextRotationsOf(recovered))
    out += formatText("  context shift: yes\n");
  else
    out += formatText("  context shift: no, {}\n", recovered.context->shiftFailure->str());
  out += formLines(recovered, toolkit);
  printWrapped(out);
  printOut(recommendation);
}

llvm::Expected<ExitCode> inspectOne(const InspectOptions& options, const CommandContext& context) {
  const std::string& path = options.models.front();
  auto recovered = recoverForInspection(path, context.toolkit);
  if (!recovered)
    return recovered.takeError();
  context.detailPasses(recovered->timings);
  if (!context.common.json()) {
    printText(path, options, *recovered, context.toolkit, Style(context.common));
    return context.finish(ExitCode::Done);
  }
  printJson(inspectionJson(path, *recovered, recommend(path, *recovered, context.toolkit),
                           context.toolkit));
  return context.finish(ExitCode::Done);
}

/// Inspects every model that can be read, even if others cannot.
ExitCode inspectMany(const InspectOptions& options, const CommandContext& context) {
  ExitCode code = ExitCode::Done;
  OrderedJson models = OrderedJson::array();
  std::vector<std::string> names = tableNames(options.models);
  if (!context.common.json())
    printTable(tableHead());
  Progress progress(context.toolkit.progress, "inspecting models");
  progress.expect(static_cast<double>(options.models.size()));
  for (size_t i = 0; i < options.models.size(); ++i) {
    const std::string& path = options.models[i];
    auto recovered = recoverForInspection(path, context.toolkit);
    progress.hide();
    if (!recovered) {
      Diagnostic diagnostic = takeDiagnostic(recovered.takeError());
      code = ExitCode::BadInput;
      context.error("kvopt: error: " + diagnostic.text());
      models.push_back({{"model", path}, {"error", diagnostic.str()}});
      if (!context.common.json())
        printTable(tableErrorRow(names[i]));
    } else if (context.common.json()) {
      models.push_back(modelJson(path, *recovered, recommend(path, *recovered, context.toolkit),
                                 context.toolkit));
    } else {
      printTable(tableRow(names[i], recovered->context->sites));
    }
    progress.advance(1);
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
  CLI::App* command = app.add_subcommand(
      "inspect", "Every cache and attention layer of a model, and what to do; a table for several");
  CommandOptions add(*command, context, Command::Inspect);
  add.add("models", options->models);
  add.add("--context", options->context);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return inspect(*options, context); };
  });
}

} // namespace kvopt::cli
