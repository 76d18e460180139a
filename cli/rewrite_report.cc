// Reports of rewrites.
#include "cli/rewrite_report.h"

#include "cli/byte_text.h"
#include "ir/format.h"
#include "passes/pass.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
namespace {

/// Bytes that one more token of one sequence costs with `context` rows in the caches: all rows of
/// caches that grow, or that are joined from blocks, one row of those in one buffer and, unless
/// they are `joined`, in blocks. nullopt when an extent is not fixed.
std::optional<int64_t> bytesPerToken(llvm::ArrayRef<ManifestCache> caches, int64_t context,
                                     bool joined = true) {
  int64_t total = 0;
  for (const ManifestCache& cache : caches) {
    if (cache.kind == CacheKind::Cross)
      continue; // only read
    std::optional<unsigned> width = byteWidth(cache.dtype);
    if (!width)
      return std::nullopt;
    const bool isInBlocks = cache.policy == CachePolicy::Block && !joined;
    int64_t rows = cache.oneBuffer || isInBlocks ? 1 : context;
    int64_t bytes = *width;
    for (size_t axis = 1; axis < cache.shape.size(); ++axis) {
      const int64_t* fixed = std::get_if<int64_t>(&cache.shape[axis]);
      bool isSequence = static_cast<int64_t>(axis) == cache.sequenceAxis;
      if (!isSequence && !fixed)
        return std::nullopt;
      if (__builtin_mul_overflow(bytes, isSequence ? rows : *fixed, &bytes))
        return std::nullopt;
    }
    if (__builtin_add_overflow(total, bytes, &total))
      return std::nullopt;
  }
  return total;
}

/// Whether some node joins blocks: not all are read where they lie.
bool joinsBlocks(const Manifest& manifest, const OpCounts& after) {
  auto nodes = [&](const char* op) {
    const auto found = after.find(op);
    return found == after.end() ? int64_t{0} : found->second;
  };
  const auto inBlocks = llvm::count_if(manifest.caches, [](const ManifestCache& cache) {
    return cache.policy == CachePolicy::Block;
  });
  return 2 * nodes("ai.kvopt::BlockKvSdpa") + nodes("ai.kvopt::BlockLatentKvSdpa") != inBlocks;
}

constexpr int64_t reportedContext = 4096;

OrderedJson heading(const std::string& output, const std::string& target) {
  OrderedJson json;
  json["schema"] = "kvopt/rewrite/1";
  json["output"] = output.empty() ? OrderedJson(nullptr) : OrderedJson(output);
  json["target"] = target;
  return json;
}

OrderedJson externalJson(const RewriteOutcome& outcome) {
  if (outcome.externalPlacement.empty())
    return nullptr;
  return {{"placement", outcome.externalPlacement}, {"files", outcome.externalFiles}};
}

/// What stands beside the table of operators.
std::vector<SafeText> besides(const PassContext& passes, const RewriteOutcome& outcome) {
  std::vector<SafeText> lines;
  auto before = bytesPerToken(passes.exportedCaches, reportedContext);
  auto after = bytesPerToken(passes.manifest->caches, reportedContext,
                             joinsBlocks(*passes.manifest, outcome.after));
  if (passes.exportedCaches.empty() && passes.manifest->caches.empty()) {
    lines.push_back("no caches");
  } else if (before && after) {
    lines.push_back(formatText("cache bytes copied per token @{}", reportedContext));
    lines.push_back(formatText("  before {}   after {}", byteText(*before), byteText(*after)));
  }
  const Manifest& manifest = *passes.manifest;
  if (manifest.ownsCaches() && manifest.capacityValue)
    lines.push_back(formatText("capacity {}", *manifest.capacityValue));
  for (const std::string& assumption : passes.assumptions)
    lines.push_back(formatText("assumes {}", assumption));
  if (outcome.opsetBefore != outcome.opsetAfter)
    lines.push_back(formatText("opset {} → {}", outcome.opsetBefore, outcome.opsetAfter));
  if (outcome.irBefore != outcome.irAfter)
    lines.push_back(formatText("IR version {} → {}", outcome.irBefore, outcome.irAfter));
  return lines;
}

} // namespace

OrderedJson rewriteJson(const std::string& output, const std::string& target,
                        const PassContext& passes, const RewriteOutcome& outcome) {
  auto bytes = [](std::optional<int64_t> count) {
    return count ? OrderedJson(*count) : OrderedJson(nullptr);
  };
  OrderedJson json = heading(output, target);
  json["sites"] = {{"rewritten", passes.statistics.at("lower").at("sites")},
                   {"total", passes.sites.size()}};
  json["assumptions"] = passes.assumptions;
  json["ops"] = {{"before", outcome.before}, {"after", outcome.after}};
  json["cache_bytes_copied_per_token"] = {
      {"context", reportedContext},
      {"before", bytes(bytesPerToken(passes.exportedCaches, reportedContext))},
      {"after", bytes(bytesPerToken(passes.manifest->caches, reportedContext,
                                    joinsBlocks(*passes.manifest, outcome.after)))}};
  json["opset"] = {{"before", outcome.opsetBefore}, {"after", outcome.opsetAfter}};
  json["ir_version"] = {{"before", outcome.irBefore}, {"after", outcome.irAfter}};
  json["external_data"] = externalJson(outcome);
  json["millis"] = outcome.milliseconds;
  json["verify"] =
      outcome.verification ? verificationJson(*outcome.verification) : OrderedJson(nullptr);
  if (!outcome.notVerified.empty())
    json["not_verified"] = outcome.notVerified;
  return json;
}

OrderedJson sameModelJson(const std::string& output, const std::string& target,
                          const RewriteOutcome& outcome) {
  OrderedJson json = heading(output, target);
  json["already"] = true;
  json["sites"] = {{"rewritten", 0}, {"total", 0}};
  json["ops"] = {{"before", outcome.before}, {"after", outcome.before}};
  json["opset"] = {{"before", outcome.opsetBefore}, {"after", outcome.opsetBefore}};
  json["ir_version"] = {{"before", outcome.irBefore}, {"after", outcome.irBefore}};
  json["external_data"] = externalJson(outcome);
  return json;
}

SafeText rewriteTable(const PassContext& passes, const RewriteOutcome& outcome,
                      const Style& style) {
  SafeText out = "  ";
  for (const auto& [pass, counters] : passes.statistics)
    for (const auto& [counter, count] : counters)
      if (count != 0)
        out += formatText("{} {} · ", counter, count);
  out += formatText("{:.0f} ms\n", outcome.milliseconds);
  out += opTable(outcome.before, outcome.after, besides(passes, outcome));
  if (outcome.verification)
    out +=
        "  verify  " +
        style.verdict(verificationSummary(*outcome.verification), outcome.verification->equal()) +
        "\n";
  if (!outcome.notVerified.empty())
    out += formatText("  not verified: {}\n", outcome.notVerified);
  return out;
}

SafeText drivingNotes(const Manifest& manifest, const std::string& manifestPath) {
  SafeText notes;
  if (manifest.contract == CacheContract::SharedBuffer)
    notes += formatText("  bind    past and present of each cache must be ONE buffer: see {}\n",
                        manifestPath);
  if (manifest.chunkBatch)
    notes += formatText("  steps   several tokens after a past in a batch of at most {}\n",
                        *manifest.chunkBatch);
  return notes;
}

} // namespace kvopt
