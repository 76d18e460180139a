// Conditions on sites for com.microsoft::GroupQueryAttention, from the forms that ONNX Runtime's
// CPU kernel accepts.
#include "passes/analysis/cache/site_words.h"
#include "passes/pattern/handled.h"
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/ort_gqa/gqa_lowering.h"
#include "passes/targets/ort_gqa/multi_head_form.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

MatchFailure refusal(ReasonCode code, const AttentionSite& site, std::string expected,
                     std::string found, std::string hint) {
  return {code, site.node->name().str(), std::move(expected), std::move(found), std::move(hint)};
}

constexpr llvm::StringLiteral handledAttributes[] = {"scale", "causal", "window", "softcap",
                                                     "mask_boolean"};
constexpr llvm::StringLiteral handledOperands[] = {"query", "key",   "value",
                                                   "mask",  "sinks", "past_length"};

/// The rule for the operator that this target writes.
constexpr const char* raisesGroupQueryAttention = "raise-group-query-attention";

constexpr const char* keptByKvopt = "--to kvopt can take it";

/// No row may see a later key: the operator hides all of them, and its bias hides the rest. For a
/// row that sees no key the operator has other results, so it must be padding.
std::optional<MatchFailure> checkCausal(const AttentionSite& site) {
  if (site.node->intAttr("causal", 0) != 0)
    return std::nullopt;
  if (!site.mask)
    return refusal(ReasonCode::MaskUnprovenCausal, site, "a causal mask",
                   "a mask that was not analyzed", "");
  if (site.mask->causal == Proof::Proved || (site.mask->hidesLaterKeys && site.mask->seesOwnKey))
    return std::nullopt;
  if (site.mask->hidesLaterKeys)
    return refusal(ReasonCode::MaskUnprovenCausal, site,
                   "a mask that shows every row its own key, except for padding", site.mask->text,
                   keptByKvopt);
  if (site.mask->causalIf)
    return refusal(ReasonCode::MaskUnprovenCausal, site, "a mask that is causal for every input",
                   "causal if " + site.mask->causalIf->text, keptByKvopt);
  bool isRefuted = site.mask->causal == Proof::Refuted;
  return refusal(
      isRefuted ? ReasonCode::MaskNoncausal : ReasonCode::MaskUnprovenCausal, site, "a causal mask",
      isRefuted && !site.mask->counterExample.empty() ? site.mask->counterExample : site.mask->text,
      keptByKvopt);
}

std::optional<MatchFailure> checkWidths(const AttentionSite& site) {
  auto keyWidth = site.keyWidth.value();
  auto valueWidth = site.valueWidth.value();
  auto groups = site.keyHeads.value();
  if (!keyWidth || !valueWidth || !groups)
    return refusal(ReasonCode::HeadCountUnproven, site, "a fixed number and width of heads",
                   formatted("{} heads of keys, widths {} and {}", site.keyHeads.str(),
                             site.keyWidth.str(), site.valueWidth.str()),
                   "");
  if (*keyWidth != *valueWidth)
    return refusal(ReasonCode::TargetLacksFeature, site, "keys and values of one width",
                   formatted("{} and {}", *keyWidth, *valueWidth), keptByKvopt);
  if (*keyWidth <= 0 || *keyWidth % 8 != 0)
    return refusal(ReasonCode::TargetLacksFeature, site, "a head width that is a multiple of 8",
                   std::to_string(*keyWidth), keptByKvopt);
  return std::nullopt;
}

} // namespace

std::optional<MatchFailure> supportsGqaForm(const AttentionSite& site) {
  if (site.rule == raisesGroupQueryAttention && site.isOverwritten())
    return refusal(ReasonCode::AlreadyInPlace, site, "a cache to keep in one buffer",
                   "one that GroupQueryAttention updates in place", "");
  if (std::optional<MatchFailure> failure = supportsKvoptSite(site))
    return failure;
  if (std::optional<MatchFailure> failure = doesNotGrow(site))
    return failure;
  if (site.isCross)
    return multiHeadObstacle(site);
  if (std::optional<MatchFailure> failure =
          unhandled(*site.node, {handledAttributes, handledOperands}))
    return failure;
  if (!site.hasCache())
    return refusal(ReasonCode::NoCache, site, "attention that appends to a cache",
                   "attention without a cache", "");
  if (!site.grows() || site.isLatent())
    return refusal(ReasonCode::TargetLacksFeature, site,
                   "caches of keys and of values that new rows are appended to",
                   formatted("a cache that is {}", sitePolicyName(site)), keptByKvopt);
  ElementType element = site.node->operand(0)->type().elementType();
  for (const SiteCache* update : {&*site.key, &*site.value}) {
    ElementType cached = update->past->type().elementType();
    if (cached != element || (element != ElementType::Float && element != ElementType::Float16))
      return refusal(ReasonCode::DtypeMix, site, "query and caches of float or of float16",
                     formatted("{} and {}", onnxName(element), onnxName(cached)), keptByKvopt);
    if (!CacheLayout::ofAttention().orderFrom(update->layout))
      return refusal(ReasonCode::LayoutUnsupported, site, "caches with axes B, H, S and D",
                     update->layout.text(), keptByKvopt);
  }
  if (site.node->floatAttr("scale", 1.0f) == 0.0f)
    return refusal(ReasonCode::TargetLacksFeature, site, "a scale other than 0", "0", keptByKvopt);
  if (std::optional<MatchFailure> failure = checkWidths(site))
    return failure;
  return checkCausal(site);
}

} // namespace kvopt::targets
