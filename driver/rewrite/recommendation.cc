// The recommended command is that of the form which a rewrite writes by default.
#include "driver/rewrite/recommendation.h"

#include "driver/engines/engine_facts.h"
#include "driver/forms/form_table.h"
#include "driver/inspect/unmatched_caches.h"
#include "driver/rewrite/rewrite_forms.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace targets;

namespace {

/// Whether ONNX Runtime's operator updates the layer's caches in place already.
bool isInPlace(const AttentionSite& site) {
  return site.rule == "raise-group-query-attention" && site.isOverwritten();
}

/// The recommendation of a model whose operators, which `by` names, update its caches in place.
Recommendation inPlaceAlready(const std::string& path, llvm::StringRef by) {
  return {
      formatted("ONNX Runtime: nothing to rewrite, for {} updates caches in place; the manifest "
                "says how to bind them",
                by.str()),
      formatted("kvopt rewrite {} -o OUT.onnx", path)};
}

Recommendation withoutAttention(const std::string& path, const RecoveredModel& recovered) {
  Graph& graph = recovered.model->graph();
  if (!unmatchedCaches(graph, recovered.context->sites).empty())
    return {"no attention found, although the model has caches",
            formatted("kvopt explain {} -v", path)};
  const bool hasConvolution =
      llvm::any_of(graph.nodes(), [](const Node& node) { return node.is("Conv"); });
  return {hasConvolution ? "no attention found: this looks like a vision or audio model; nothing "
                           "to rewrite"
                         : "no attention found: this is not a decoder; nothing to rewrite",
          ""};
}

/// The engine that runs the form, with its oldest version if not every version does.
std::string engineText(const Form& form) {
  if (form.engine == Engine::Ort)
    return "ONNX Runtime";
  const EngineUse use = form.cache == CacheKind::Grow ? EngineUse::Opset23 : EngineUse::Opset24;
  return formatted("ONNX Runtime {} or newer", engineFact(use).ortVersion);
}

/// The recommendation of the form that a rewrite without `--to` writes; nullopt if it writes none.
std::optional<Recommendation> writtenByDefault(const ModelSource& source,
                                               const RecoveredModel& recovered,
                                               const Toolkit& toolkit) {
  RewriteRequest request;
  request.source = source;
  request.verification = VerificationExtent::Off;
  // A form that refuses a layer would be refused, too, but only after another recovery.
  for (const Form& form : formsThatTakeAll(*recovered.model, *recovered.context, toolkit)) {
    auto tried = rewriteInFirstForm(source, request, form, toolkit);
    if (!tried) {
      llvm::consumeError(tried.takeError());
      return std::nullopt;
    }
    if (std::holds_alternative<RefusedModel>(tried->result))
      continue;
    if (const auto* unchanged = std::get_if<UnchangedModel>(&tried->result))
      return inPlaceAlready(source.path, unchanged->updatedBy);
    return Recommendation{engineText(form),
                          formatted("kvopt rewrite {} -o OUT.onnx{}", source.path,
                                    form == defaultForms().front() ? "" : " " + optionsOf(form))};
  }
  return std::nullopt;
}

} // namespace

Recommendation recommend(const ModelSource& source, const RecoveredModel& recovered,
                         const Toolkit& toolkit) {
  const std::string& path = source.path;
  const SiteList& sites = recovered.context->sites;
  if (!recovered.writtenFor.empty())
    return {"written by kvopt; its manifest says how to drive it",
            formatted("kvopt run {} --tokens 1,2,3 --steps 8", path)};
  if (sites.empty())
    return withoutAttention(path, recovered);
  if (llvm::none_of(sites, [](const AttentionSite& site) { return site.isMatched(); }))
    return {"no attention layer is recognized", formatted("kvopt explain {}", path)};
  if (auto without = recommendWithoutCaches(path, sites))
    return std::move(*without);
  if (llvm::all_of(sites, isInPlace))
    return inPlaceAlready(path, "com.microsoft::GroupQueryAttention");
  if (auto written = writtenByDefault(source, recovered, toolkit))
    return std::move(*written);
  for (const Form& form : defaultForms())
    if (const FormFit fit = fitOf(form, *recovered.model, *recovered.context, toolkit);
        fit.gaining != 0 && fit.refused != 0)
      return {formatted("{}, {} of {} attention layers", engineText(form), fit.taken, sites.size()),
              formatted("kvopt rewrite {} -o OUT.onnx {} --require any", path, optionsOf(form))};
  return {"ONNX Runtime's operators take no attention layer that updates a cache",
          formatted("kvopt explain {} --to ort", path)};
}

} // namespace kvopt::driver
