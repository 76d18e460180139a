// Texts about rewritten models.
#include "cli/report/rewrite_answer.h"

#include "cli/report/byte_text.h"
#include "cli/report/op_table.h"
#include "driver/check/check_files.h"
#include "driver/engines/engine_facts.h"
#include "driver/engines/operator_library.h"
#include "driver/forms/form_table.h"
#include "driver/inspect/site_facts.h"
#include "driver/inspect/site_groups.h"
#include "driver/rewrite/cache_bytes.h"
#include "driver/variants.h"
#include "support/format.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

#include <filesystem>

namespace kvopt::cli {
using namespace driver;
using namespace ir;

namespace {

/// A line such as `  saves    …`.
SafeText line(const char* label, const SafeText& text) {
  return formatText("  {:<8} ", label) + text + "\n";
}

/// Text such as `1 attention layer`, `8 attention layers`.
std::string layersText(size_t count) {
  return formatted("{} attention layer{}", count, count == 1 ? "" : "s");
}

/// The engine, with the options that choose the form.
std::string formText(const AnswerRequest& request) {
  const bool isDefault = request.isChosen && request.refused.empty();
  return formatted("for {} ({}{})", runnerOf(request.form.engine), optionsOf(request.form),
                   isDefault ? "; other forms: kvopt list targets" : "");
}

/// The headline: the change that was made, would be made, or was held back.
std::string headline(const RewrittenModel& rewritten, const AnswerRequest& request) {
  const size_t taken = rewritten.passes->lowered.size();
  const size_t total = rewritten.passes->sites.size();
  const bool isHeldBack = !rewritten.mayBeWritten();
  const char* verb = isHeldBack ? "wrote nothing: tried to " : request.isDryRun ? "would " : "";
  const bool isPast = *verb == '\0';
  if (request.command == Command::AddCache)
    return formatted("{}{} caches to {}, {}", verb, isPast ? "added" : "add", layersText(total),
                     formText(request));
  if (request.command == Command::MakeDynamic)
    return formatted("{}{} symbols to {}, {}", verb, isPast ? "gave" : "give", rewritten.freed,
                     formText(request));
  return formatted("{}{} {} of {} {}", verb, isPast ? "rewrote" : "rewrite", taken,
                   layersText(total), formText(request));
}

/// The work that a step no longer does.
SafeText savings(const RewrittenModel& rewritten) {
  const Manifest& manifest = rewritten.manifest;
  if (manifest.caches.empty())
    return "nothing: the model has no caches";
  const std::string context = countText(reportedContext);
  if (rewritten.exported.caches.empty())
    return formatText("{} tokens computed per step at {} tokens -> 1", context, context);
  const Graph& graph = rewritten.model->graph();
  const auto before = cacheBytesPerToken(rewritten.exported, graph, reportedContext);
  const auto after = cacheBytesPerToken(manifest, graph, reportedContext);
  if (!before || !after)
    return "not known: an extent of a cache is not fixed";
  if (*after >= *before)
    return formatText("no copies: a step at {} tokens copies {}, as before", context,
                      byteText(*after));
  SafeText text = formatText("{} copied per token at {} tokens -> {}", byteText(*before), context,
                             byteText(*after));
  const auto bytes = allocatedCacheBytes(manifest, reportedContext);
  if (manifest.ownsCaches() && bytes)
    text += formatText("; caches of {}{}, allocated once", byteText(*bytes),
                       manifest.capacityValue
                           ? formatted(" (capacity {})", countText(*manifest.capacityValue))
                           : "");
  return text;
}

/// Lines about a comparison; the first one has the label.
template <class Styled>
SafeText sentenceLines(const std::vector<std::string>& sentences, const Styled& styled) {
  SafeText out;
  for (const std::string& text : sentences)
    out += line(out.empty() ? "checked" : "", styled(text));
  return out;
}

/// Lines about the check that the model computes the same.
SafeText checkedLines(const RewrittenModel& rewritten, bool isVerbose, const Style& style) {
  if (!rewritten.notVerified.empty())
    return line("checked", style.bad(formatText("NOT: {}", rewritten.notVerified)));
  if (!rewritten.verification && !rewritten.checked)
    return line("checked", "nothing (--verify off)");
  if (!rewritten.verification)
    return sentenceLines(checkSentences(*rewritten.checked), [&](const std::string& text) {
      return style.verdict(text, rewritten.mayBeWritten());
    });
  const ComparedRuns& report = *rewritten.verification;
  SafeText out;
  if (!report.equal() || isVerbose)
    out = line("checked", style.verdict(report.summary(isVerbose), report.equal()));
  else
    out =
        sentenceLines(report.verdict(), [&](const std::string& text) { return style.good(text); });
  if (const std::string warning = rewritten.contradiction(); !warning.empty())
    out += line("warning", style.bad(warning));
  else if (rewritten.checked)
    out += line("", formatText("without a run: {}", checkSentences(*rewritten.checked).front()));
  return out;
}

/// A cache that grows from a fixed number of rows; null if there is none.
const ManifestCache* cacheOfFixedPast(const Manifest& exported) {
  const auto found = llvm::find_if(exported.caches, [](const ManifestCache& cache) {
    return cache.update() == CacheUpdate::Grows && cache.fixedRows();
  });
  return found == exported.caches.end() ? nullptr : &*found;
}

/// Layers that stay as they were exported, with one line for each reason.
SafeText leftLines(llvm::ArrayRef<passes::LeftSite> left) {
  std::vector<std::pair<std::string, llvm::SmallVector<unsigned, 32>>> groups;
  for (const passes::LeftSite& site : left) {
    pattern::MatchFailure why = site.why;
    why.hint.clear();
    // Names of nodes differ between layers that have one reason.
    why.node.clear();
    const std::string text =
        site.costsNothing
            ? formatted("no step changes the keys and values that are read, so that there is "
                        "nothing to gain ({})",
                        reasonName(why.code))
            : why.str();
    auto group = llvm::find_if(groups, [&](const auto& known) { return known.first == text; });
    if (group == groups.end())
      group = groups.insert(groups.end(), {text, {}});
    group->second.push_back(site.layer);
  }
  SafeText out;
  for (const auto& [text, layers] : groups)
    out += line("left", formatText("{} as exported: {}", layerRanges(layers), text));
  return out;
}

/// Assumptions, and changes other than those of attention.
SafeText notes(const RewrittenModel& rewritten) {
  const passes::PassContext& passes = *rewritten.passes;
  SafeText out;
  for (const std::string& assumption : passes.assumptions)
    out += line("assumes", formatText("{}", assumption));
  for (const std::string& sentence : passes.unequalExtents)
    out += line("extents", formatText("{}", sentence));
  if (const auto& outputs = passes.outputsMadeCaches; !outputs.empty())
    out += line("outputs",
                formatText("'{}' handed out the new rows of {} cache{} and now {} the whole",
                           llvm::join(outputs, "', '"), outputs.size(),
                           outputs.size() == 1 ? "" : "s", outputs.size() == 1 ? "holds" : "hold"));
  if (!rewritten.freed.empty() && !rewritten.fixedBecause.empty())
    out += line("fixed", formatText("others stay fixed: {}", rewritten.fixedBecause));
  const ManifestCache* fixed =
      rewritten.freed.empty() ? cacheOfFixedPast(rewritten.exported) : nullptr;
  if (fixed)
    out += line("fixed", formatText("'{}' was exported for {} earlier rows: kvopt make-dynamic "
                                    "makes a model for any number",
                                    fixed->past, *fixed->fixedRows()));
  if (rewritten.calibrationTokens != 0)
    out += line("scales", formatText("calibrated on {} tokens", rewritten.calibrationTokens));
  if (rewritten.before.opset != rewritten.after.opset)
    out += line("opset", formatText("{} -> {}", rewritten.before.opset, rewritten.after.opset));
  return out;
}

/// Notes on driving the model: what a program must do, and what it must not do.
SafeText drivingNotes(const Manifest& manifest, const std::string& manifestPath) {
  SafeText out;
  if (manifest.contract == CacheUpdate::InPlace)
    out += line("bind", formatText("past and present of each cache must be ONE buffer: see {}",
                                   manifestPath));
  const auto attended = llvm::count_if(
      manifest.caches, [](const ManifestCache& cache) { return cache.holdsAttendedRows; });
  if (attended != 0)
    out += line("rows", formatText("{} of {} caches hold rows as attention reads them: they are "
                                   "not those of the exported model's caches",
                                   attended, manifest.caches.size()));
  if (manifest.chunkBatch)
    out += line("steps", formatText("several tokens after a past in a batch of at most {}",
                                    *manifest.chunkBatch));
  if (manifest.stepLimit)
    out += line("steps", formatText("of at most {} tokens", *manifest.stepLimit));
  if (!manifest.firstStep.empty())
    out += line("first", formatText("run {} once for an encoded sequence: it gives the caches that "
                                    "are only read",
                                    manifest.firstStep));
  if (!manifest.reorder.empty())
    out += line("order", formatText("before a step, rearrange batch rows of caches as '{}' says",
                                    manifest.reorder));
  return out;
}

/// Text such as ` (3.1 MiB, weights stay in decoder.onnx.data)`, or `weights in the hard link` for
/// an output in another folder.
std::string sizeText(const RewrittenPaths& paths, const WeightFiles& weights) {
  std::error_code unknown;
  const uintmax_t bytes = std::filesystem::file_size(paths.model, unknown);
  std::string text = " (" + (unknown ? "" : byteText(static_cast<int64_t>(bytes)));
  const std::vector<std::string>& files = weights.files;
  if (!files.empty())
    text += weights.placement == WeightPlacement::Link   ? ", weights in the hard link "
            : weights.placement == WeightPlacement::Keep ? ", weights stay in "
                                                         : ", weights in ";
  if (files.size() > 1)
    text += formatted("{} files", files.size());
  else if (!files.empty())
    text += llvm::sys::path::filename(files[0]).str();
  return text + ")";
}

/// The written files: `OUT.onnx (3.1 MiB), its variants A to B and OUT.kv.json`.
std::string writtenText(const Manifest& manifest, const RewrittenPaths& paths,
                        const WeightFiles& weights) {
  std::string text = paths.model + sizeText(paths, weights);
  const std::vector<std::string> variants = variantPaths(manifest, paths.model);
  if (variants.size() == 1)
    text += ", its variant " + variants.front();
  else if (!variants.empty())
    text += formatted(", its variants {} to {}", variants.front(), variants.back());
  if (const std::vector<std::string> pieces = piecePaths(manifest, paths.model); !pieces.empty())
    text += formatted(", its pieces {} to {}", pieces.front(), pieces.back());
  if (!manifest.firstStep.empty())
    text += ", " + firstStepPath(paths.model);
  return formatted("{} and {}", text, paths.manifestPath());
}

SafeText nextLine(const Manifest& manifest, const AnswerRequest& request) {
  const std::string next = nextCommand(manifest, request);
  if (next.empty())
    return {};
  const char* needed = startsWith(next, "python3 ") ? "   (with kvopt's Python package)" : "";
  return formatText("next: {}{}\n", next, needed);
}

/// How GenAI gets kernels for kvopt's operators.
SafeText genaiNote() {
  const std::string library = operatorLibrary();
  if (!library.empty())
    return formatText("the configuration loads {}", library);
  return formatText(
      "runs function bodies, which is slower than the export: {} is not installed with kvopt. "
      "Build "
      "it with -DKVOPT_ONNXRUNTIME=ON, and name it in session_options.custom_ops_library",
      operatorLibraryName);
}

/// Details: counters of passes, operators and versions.
SafeText details(const RewrittenModel& rewritten) {
  SafeText out = "  ";
  for (const auto& [pass, counters] : rewritten.passes->statistics)
    for (const auto& [counter, count] : counters)
      if (count != 0)
        out += formatText("{} {} · ", counter, count);
  out += formatText("{:.0f} ms\n", rewritten.milliseconds);
  if (rewritten.before.irVersion != rewritten.after.irVersion)
    out += formatText("  IR version {} -> {}\n", rewritten.before.irVersion,
                      rewritten.after.irVersion);
  return out + opTable(rewritten.before.ops, rewritten.after.ops, {});
}

} // namespace

std::string nextCommand(const Manifest& manifest, const AnswerRequest& request) {
  if (request.isDryRun)
    return formatted("kvopt {} {} -o OUT.onnx {}", wordOf(request.command), request.model,
                     optionsOf(request.form));
  if (!manifest.firstStep.empty())
    return "";
  if (manifest.caches.empty() && request.command == Command::Rewrite)
    return formatted("kvopt add-cache {} -o {}", request.model, request.paths.model);
  const bool isForPython =
      request.form.engine == Engine::Ort && request.form.cache == CacheKind::Buffer;
  return isForPython ? formatted("python3 -m kvopt.onnxruntime {} 1,2,3 8", request.paths.model)
         : request.canRun ? formatted("kvopt run {} --tokens 1,2,3 --steps 8", request.paths.model)
                          : "";
}

SafeText rewriteAnswer(RewrittenModel& rewritten, const WeightFiles& weights,
                       const AnswerRequest& request, const Style& style) {
  const Manifest& manifest = rewritten.manifest;
  SafeText out = formatText("{}\n", headline(rewritten, request));
  if (rewritten.mayBeWritten())
    out += line("saves", savings(rewritten));
  out += checkedLines(rewritten, request.isVerbose, style);
  for (const auto& [form, why] : request.refused)
    out += line("form", formatText("{}, because {} is not possible: {}", optionsOf(request.form),
                                   optionsOf(form), why));
  out += leftLines(rewritten.passes->left);
  out += notes(rewritten);
  if (request.isVerbose)
    out += details(rewritten);
  if (!rewritten.mayBeWritten())
    return out;
  const bool isForGenai = manifest.operators && !request.paths.genaiConfig.empty();
  if (isForGenai)
    out += line("genai", genaiNote());
  else
    for (const std::string& note : engineNotes(rewritten.model->graph(), rewritten.otherForms))
      out += line("warning", note);
  out += drivingNotes(manifest, request.isDryRun ? "the manifest" : request.paths.manifestPath());
  if (!request.isDryRun)
    out += formatText("wrote {}\n", writtenText(manifest, request.paths, weights));
  return out + nextLine(manifest, request);
}

SafeText unchangedAnswer(const UnchangedModel& unchanged, const WeightFiles& weights,
                         const AnswerRequest& request) {
  const Manifest& manifest = unchanged.manifest;
  SafeText out =
      unchanged.updatedBy.empty()
          ? formatText("nothing to do: {} is in the form of '{}' already\n", request.model,
                       targetText(request.form))
          : formatText("nothing to do: {} updates the caches of {} in place where past and present "
                       "are one buffer\n",
                       unchanged.updatedBy, request.model);
  auto plain = [](const std::string& text) { return text; };
  if (unchanged.verification)
    out += sentenceLines(unchanged.verification->verdict(), plain);
  if (unchanged.checked)
    out += sentenceLines(checkSentences(*unchanged.checked), plain);
  out += drivingNotes(manifest, request.isDryRun ? "the manifest" : request.paths.manifestPath());
  if (request.isDryRun)
    return out;
  out +=
      formatText("wrote the unchanged model: {}\n", writtenText(manifest, request.paths, weights));
  return out + nextLine(manifest, request);
}

std::vector<SafeText> refusedLayers(const RefusedModel& refused) {
  std::vector<std::pair<std::string, std::vector<const RefusedSite*>>> groups;
  for (const RefusedSite& site : refused.sites) {
    const std::string key = failureKey(site.failure);
    auto group = llvm::find_if(groups, [&](const auto& known) { return known.first == key; });
    if (group == groups.end())
      group = groups.insert(groups.end(), {key, {}});
    group->second.push_back(&site);
  }
  std::vector<SafeText> lines;
  // The message already has the first reason.
  if (groups.size() < 2)
    return lines;
  for (const auto& group : groups) {
    llvm::SmallVector<unsigned, 32> layers;
    for (const RefusedSite* site : group.second)
      layers.push_back(site->layer);
    lines.push_back(
        formatText("  {}  {}", layerRanges(layers), group.second.front()->failure.str()));
  }
  return lines;
}

} // namespace kvopt::cli
