// Choice of the recommended command from the recognized layers.
#include "driver/inspect/recommendation.h"

#include "driver/engines/engine_facts.h"
#include "driver/forms/form_table.h"
#include "driver/inspect/unmatched_caches.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace targets;

namespace {

/// The rule for the operator whose caches ONNX Runtime already updates in place.
constexpr const char* sharingRule = "raise-group-query-attention";

/// Forms that ONNX Runtime runs, in the order in which they are recommended.
constexpr Form recommended[] = {{Engine::Ort, CacheKind::Buffer},
                                {Engine::Onnx, CacheKind::Buffer},
                                {Engine::Onnx, CacheKind::Grow}};

bool isCausal(const AttentionSite& site) {
  return site.mask && (site.mask->causal == Proof::Proved || site.mask->causalIf);
}

Recommendation withoutAttention(const std::string& path, const RecoveredModel& recovered) {
  Graph& graph = recovered.model->graph();
  if (!unmatchedCaches(graph, recovered.context->sites).empty())
    return {"no attention found, although the model has caches",
            fmt::format("kvopt explain {} -v", path)};
  const bool hasConvolution =
      llvm::any_of(graph.nodes(), [](const Node& node) { return node.is("Conv"); });
  return {hasConvolution ? "no attention found: this looks like a vision or audio model; nothing "
                           "to rewrite"
                         : "no attention found: this is not a decoder; nothing to rewrite",
          ""};
}

Recommendation withoutCaches(const std::string& path, const SiteList& sites) {
  if (llvm::all_of(sites, isCausal))
    return {"the decoder computes the whole sequence at every step; give it caches",
            fmt::format("kvopt add-cache {} -o OUT.onnx", path)};
  return {"attention is not causal and has no caches: this looks like an encoder; nothing to "
          "rewrite",
          ""};
}

/// Number of attention layers that the form's target accepts.
size_t countTaken(const Form& form, const RecoveredModel& recovered, const Toolkit& toolkit) {
  auto choice = targetFor(form, toolkit.targets);
  if (!choice) {
    llvm::consumeError(choice.takeError());
    return 0;
  }
  const auto failures = refusals(*choice->target, recovered.context->sites, *recovered.model,
                                 recovered.context->reorder);
  return static_cast<size_t>(
      llvm::count_if(failures, [](const auto& failure) { return !failure; }));
}

/// The engine that runs the form, with its oldest version if not every version does.
std::string engineText(const Form& form) {
  if (form.engine == Engine::Ort)
    return "ONNX Runtime";
  const EngineUse use = form.cache == CacheKind::Grow ? EngineUse::Opset23 : EngineUse::Opset24;
  return fmt::format("ONNX Runtime {} or newer", engineFact(use).ortVersion);
}

} // namespace

Recommendation recommend(const std::string& path, const RecoveredModel& recovered,
                         const Toolkit& toolkit) {
  const SiteList& sites = recovered.context->sites;
  if (!recovered.writtenFor.empty())
    return {"written by kvopt; its manifest says how to drive it",
            fmt::format("kvopt run {} --tokens 1,2,3 --steps 8", path)};
  if (sites.empty())
    return withoutAttention(path, recovered);
  if (llvm::none_of(sites, [](const AttentionSite& site) { return site.isMatched(); }))
    return {"no attention layer is recognized", fmt::format("kvopt explain {}", path)};
  if (llvm::none_of(sites, [](const AttentionSite& site) { return site.hasCache(); }) &&
      llvm::all_of(sites, [](const AttentionSite& site) { return site.isMatched(); }))
    return withoutCaches(path, sites);
  for (const Form& form : recommended) {
    if (countTaken(form, recovered, toolkit) < sites.size())
      continue;
    const std::string command = fmt::format("kvopt rewrite {} -o OUT.onnx{}", path,
                                            form == recommended[0] ? "" : " " + optionsOf(form));
    const bool isInPlace =
        form.engine == Engine::Ort &&
        llvm::all_of(sites, [](const AttentionSite& site) { return site.rule == sharingRule; });
    return {isInPlace ? "ONNX Runtime: nothing to rewrite, for GroupQueryAttention updates caches "
                        "in place; the manifest says how to bind them"
                      : engineText(form),
            command};
  }
  for (const Form& form : recommended)
    if (const size_t taken = countTaken(form, recovered, toolkit); taken != 0)
      return {fmt::format("{}, {} of {} attention layers", engineText(form), taken, sites.size()),
              fmt::format("kvopt rewrite {} -o OUT.onnx {} --require any", path, optionsOf(form))};
  return {"ONNX Runtime's operators take no attention layer",
          fmt::format("kvopt explain {} --to ort", path)};
}

} // namespace kvopt::driver
