// Reports of rewrites.
#include "cli/report/rewrite_report.h"

#include "cli/report/byte_text.h"
#include "cli/report/op_table.h"
#include "driver/inspect/site_facts.h"
#include "driver/rewrite/cache_bytes.h"
#include "driver/variants.h"
#include "driver/verify/report.h"
#include "ir/op.h"
#include "passes/pass.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

#include <filesystem>
#include <set>

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr int64_t reportedContext = 4096;

/// Bytes written to caches at a step of one token.
struct CopiedBytes {
  explicit CopiedBytes(const RewrittenModel& rewritten)
      : after(cacheBytesPerToken(rewritten.manifest, rewritten.model->graph(), reportedContext)) {
    // A model without caches copies none, but computes all tokens again.
    if (!rewritten.exported.caches.empty())
      before = cacheBytesPerToken(rewritten.exported, rewritten.model->graph(), reportedContext);
  }

  std::optional<int64_t> before;
  std::optional<int64_t> after;
};

/// What stands beside the table of operators.
std::vector<SafeText> besides(const RewrittenModel& rewritten) {
  std::vector<SafeText> lines;
  const Manifest& manifest = rewritten.manifest;
  const CopiedBytes bytes(rewritten);
  if (rewritten.exported.caches.empty() && manifest.caches.empty()) {
    lines.push_back("no caches");
  } else if (rewritten.exported.caches.empty()) {
    lines.push_back(formatText("tokens computed per step @{}", reportedContext));
    lines.push_back(formatText("  before {}   after 1", reportedContext));
  } else if (bytes.before && bytes.after) {
    lines.push_back(formatText("cache bytes copied per token @{}", reportedContext));
    lines.push_back(
        formatText("  before {}   after {}", byteText(*bytes.before), byteText(*bytes.after)));
  }
  if (manifest.ownsCaches() && manifest.capacityValue)
    lines.push_back(formatText("capacity {}", *manifest.capacityValue));
  for (const std::string& assumption : rewritten.passes->assumptions)
    lines.push_back(formatText("assumes {}", assumption));
  if (rewritten.calibrationTokens != 0)
    lines.push_back(formatText("scales calibrated on {} tokens", rewritten.calibrationTokens));
  const auto& [opsBefore, opsetBefore, irBefore] = rewritten.before;
  const auto& [opsAfter, opsetAfter, irAfter] = rewritten.after;
  if (opsetBefore != opsetAfter)
    lines.push_back(formatText("opset {} → {}", opsetBefore, opsetAfter));
  if (irBefore != irAfter)
    lines.push_back(formatText("IR version {} → {}", irBefore, irAfter));
  return lines;
}

/// `, variants …` where there are any.
std::string variantsText(const Manifest& manifest, const RewrittenPaths& written) {
  const std::vector<std::string> paths = variantPaths(manifest, written.model);
  if (paths.empty())
    return "";
  if (paths.size() == 1)
    return ", its variant " + paths.front();
  return fmt::format(", its variants {} to {}", paths.front(), paths.back());
}

/// `, pieces …` where there are any.
std::string piecesText(const Manifest& manifest, const RewrittenPaths& written) {
  const std::vector<std::string> paths = piecePaths(manifest, written.model);
  return paths.empty() ? "" : fmt::format(", its pieces {} to {}", paths.front(), paths.back());
}

/// ` (3.1 MiB, weights stay in decoder.onnx.data)`.
std::string sizeText(const RewrittenPaths& paths, const WeightFiles& weights) {
  std::error_code unknown;
  const uintmax_t bytes = std::filesystem::file_size(paths.model, unknown);
  std::string text = " (" + (unknown ? "" : byteText(static_cast<int64_t>(bytes)));
  const std::vector<std::string>& files = weights.files;
  if (!files.empty())
    text += weights.placement == ExternalPlacement::Keep ? ", weights stay in " : ", weights in ";
  if (files.size() > 1)
    text += fmt::format("{} files", files.size());
  else if (!files.empty())
    text += llvm::sys::path::filename(files[0]).str();
  return text + ")";
}

/// A cache that grows from one number of rows only; null if there is none.
const ManifestCache* cacheOfFixedPast(const Manifest& exported) {
  const auto found = llvm::find_if(exported.caches, [](const ManifestCache& cache) {
    return cache.update() == CacheUpdate::Grows && cache.fixedRows();
  });
  return found == exported.caches.end() ? nullptr : &*found;
}

} // namespace

SafeText rewriteTable(const RewrittenModel& rewritten, const Style& style) {
  SafeText out = "  ";
  for (const auto& [pass, counters] : rewritten.passes->statistics)
    for (const auto& [counter, count] : counters)
      if (count != 0)
        out += formatText("{} {} · ", counter, count);
  out += formatText("{:.0f} ms\n", rewritten.milliseconds);
  for (const std::string& sentence : rewritten.passes->unequalExtents)
    out += formatText("  {}\n", sentence);
  if (const auto& outputs = rewritten.passes->outputsMadeCaches; !outputs.empty())
    out += formatText("  outputs '{}' handed out the new rows of {} cache{} and now {} the whole\n",
                      llvm::join(outputs, "', '"), outputs.size(), outputs.size() == 1 ? "" : "s",
                      outputs.size() == 1 ? "holds" : "hold");
  if (!rewritten.freed.empty())
    out += formatText("  symbols {}\n", rewritten.freed);
  else if (const ManifestCache* cache = cacheOfFixedPast(rewritten.exported))
    out += formatText("  fixed   '{}' was exported for {} earlier rows: kvopt make-dynamic makes a "
                      "model for any number\n",
                      cache->past, *cache->fixedRows());
  if (!rewritten.fixedBecause.empty())
    out += formatText("  others stay fixed: {}\n", rewritten.fixedBecause);
  out += opTable(rewritten.before.ops, rewritten.after.ops, besides(rewritten));
  if (const auto& report = rewritten.verification)
    out += "  verify  " + style.verdict(verificationSummary(*report), report->equal()) + "\n";
  if (!rewritten.notVerified.empty())
    out += formatText("  not verified: {}\n", rewritten.notVerified);
  return out;
}

SafeText engineNote(const Graph& graph) {
  std::set<std::string> operators;
  for (const Node& node : graph.nodes())
    if (node.definition() && node.definition()->checkBody)
      operators.insert(node.op().str());
  if (operators.empty())
    return "";
  return formatText("  engines other than kvopt's runtime run the function bod{} of {}, which {} "
                    "slower\n",
                    operators.size() == 1 ? "y" : "ies", llvm::join(operators, ", "),
                    operators.size() == 1 ? "is" : "are");
}

SafeText drivingNotes(const Manifest& manifest, const std::string& manifestPath) {
  SafeText notes;
  if (manifest.contract == CacheUpdate::InPlace)
    notes += formatText("  bind    past and present of each cache must be ONE buffer: see {}\n",
                        manifestPath);
  const auto attended = llvm::count_if(
      manifest.caches, [](const ManifestCache& cache) { return cache.holdsAttendedRows; });
  if (attended != 0)
    notes += formatText("  rows    {} of {} caches hold rows as attention reads them: rows of the "
                        "exported model's caches are none\n",
                        attended, manifest.caches.size());
  if (manifest.chunkBatch)
    notes += formatText("  steps   several tokens after a past in a batch of at most {}\n",
                        *manifest.chunkBatch);
  if (manifest.stepLimit)
    notes += formatText("  steps   of at most {} tokens\n", *manifest.stepLimit);
  if (!manifest.firstStep.empty())
    notes +=
        formatText("  first   run {} once for an encoded sequence: it gives the caches that are "
                   "only read\n",
                   manifest.firstStep);
  if (!manifest.reorder.empty())
    notes += formatText("  order   before a step, rearrange batch rows of caches as '{}' says\n",
                        manifest.reorder);
  return notes;
}

std::string writtenText(const Manifest& manifest, const RewrittenPaths& paths,
                        const WeightFiles& weights) {
  return fmt::format("{}{}{} and {}", paths.model, sizeText(paths, weights),
                     variantsText(manifest, paths) + piecesText(manifest, paths) +
                         (manifest.firstStep.empty() ? "" : ", " + firstStepPath(paths.model)),
                     paths.manifestPath());
}

} // namespace kvopt::cli
