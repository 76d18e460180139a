// Conditions on sites for com.microsoft::PagedAttention.
#include "passes/analysis/cache/site_words.h"
#include "passes/pattern/handled.h"
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/paged/paged_lowering.h"
#include "support/format.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr llvm::StringLiteral pagedAttributes[] = {"scale", "causal", "window", "softcap",
                                                   "mask_boolean"};
constexpr llvm::StringLiteral pagedOperands[] = {"query", "key", "value", "sinks", "past_length"};

constexpr const char* takenByKvopt = "--to kvopt can take it";

MatchFailure pagedRefusal(ReasonCode code, const AttentionSite& site, std::string expected,
                          std::string found, std::string hint = takenByKvopt) {
  return {code, site.node->name().str(), std::move(expected), std::move(found), std::move(hint)};
}

/// Sequences have no padding: only the frontier and the window hide keys.
std::optional<MatchFailure> checkFrontier(const AttentionSite& site) {
  const bool isCausal = site.node->intAttr("causal", 0) != 0;
  if (isCausal && !site.node->operand(3))
    return std::nullopt;
  const std::string found = site.mask ? site.mask->text : "a mask that was not analyzed";
  if (!site.mask)
    return pagedRefusal(ReasonCode::MaskUnprovenCausal, site, "a causal mask", found);
  if (!site.mask->padding.empty())
    return pagedRefusal(
        ReasonCode::BiasUnsupported, site, "a mask that hides later keys only, and no padding",
        found,
        "--padding none, if batch rows are never padded; --to ort-gqa writes padding as a bias");
  if (isCausal || site.mask->causal == Proof::Proved || site.mask->hidesLaterKeys)
    return pagedRefusal(ReasonCode::BiasUnsupported, site, "a mask that only hides later keys",
                        found);
  return pagedRefusal(site.mask->causal == Proof::Refuted ? ReasonCode::MaskNoncausal
                                                          : ReasonCode::MaskUnprovenCausal,
                      site, "a causal mask", found);
}

std::optional<MatchFailure> checkHeads(const AttentionSite& site) {
  const auto keyWidth = site.keyWidth.value();
  const auto valueWidth = site.valueWidth.value();
  if (!keyWidth || !valueWidth || !site.keyHeads.value() || !site.queryHeads.value())
    return pagedRefusal(ReasonCode::HeadCountUnproven, site, "a fixed number and width of heads",
                        formatted("{} and {} heads, widths {} and {}", site.queryHeads.str(),
                                  site.keyHeads.str(), site.keyWidth.str(), site.valueWidth.str()));
  if (*keyWidth != *valueWidth)
    return pagedRefusal(ReasonCode::TargetLacksFeature, site, "keys and values of one width",
                        formatted("{} and {}", *keyWidth, *valueWidth));
  return std::nullopt;
}

} // namespace

std::optional<MatchFailure> supportsPagedForm(const AttentionSite& site) {
  if (std::optional<MatchFailure> failure = supportsKvoptSite(site))
    return failure;
  if (std::optional<MatchFailure> failure = doesNotGrow(site))
    return failure;
  if (site.isCross || !site.hasCache())
    return pagedRefusal(ReasonCode::NoCache, site, "attention that appends to a cache",
                        site.isCross ? "keys that are only read" : "attention without a cache", "");
  if (!site.grows() || site.isLatent())
    return pagedRefusal(ReasonCode::TargetLacksFeature, site,
                        "caches of keys and of values that new rows are appended to",
                        formatted("a cache that is {}", sitePolicyName(site)));
  if (std::optional<MatchFailure> failure = standsInBranch(site))
    return failure;
  if (std::optional<MatchFailure> failure = checkFrontier(site))
    return failure;
  if (std::optional<MatchFailure> failure = unhandled(*site.node, {pagedAttributes, pagedOperands}))
    return failure;
  const ElementType element = site.node->operand(0)->type().elementType();
  for (const SiteCache* update : {&*site.key, &*site.value}) {
    const ElementType cached = update->past->type().elementType();
    if (cached != element || (element != ElementType::Float && element != ElementType::Float16 &&
                              element != ElementType::BFloat16))
      return pagedRefusal(ReasonCode::DtypeMix, site,
                          "query and caches of float, of float16 or of bfloat16",
                          formatted("{} and {}", onnxName(element), onnxName(cached)));
    if (!CacheLayout::ofAttention().orderFrom(update->layout))
      return pagedRefusal(ReasonCode::LayoutUnsupported, site, "caches with axes B, H, S and D",
                          update->layout.text());
  }
  if (site.node->floatAttr("scale", 1.0f) == 0.0f)
    return pagedRefusal(ReasonCode::TargetLacksFeature, site, "a scale other than 0", "0");
  return checkHeads(site);
}

} // namespace kvopt::targets
