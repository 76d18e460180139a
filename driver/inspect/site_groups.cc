// Grouping of attention layers.
#include "driver/inspect/site_groups.h"

#include "driver/inspect/site_facts.h"
#include "passes/analysis/cache/site_words.h"
#include "support/format.h"
#include "support/json.h"
#include "support/string_ends.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::driver {
using namespace analysis;
using namespace pattern;
using namespace targets;

namespace {

bool endsLikeAType(llvm::StringRef text) {
  return endsWith(text, "float") || endsWith(text, "int") || endsWith(text, "double");
}

/// The text with equal numbers within names, which differ between layers.
std::string withoutLayers(llvm::StringRef text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!llvm::isDigit(text[i])) {
      result += text[i];
      continue;
    }
    llvm::StringRef before = text.take_front(i);
    size_t end = std::min(text.find_first_not_of("0123456789", i), text.size());
    char last = before.empty() ? ' ' : before.back();
    bool isFraction = last == '.' && before.size() > 1 && llvm::isDigit(before[before.size() - 2]);
    bool isInName = (llvm::isAlpha(last) && !endsLikeAType(before)) || last == '_' || last == '/' ||
                    (last == '.' && !isFraction);
    // The first of several nodes may lack a number: Softmax, Softmax_1.
    bool isSuffix = last == '_' && (end == text.size() || !llvm::isAlnum(text[end]));
    if (isSuffix && endsWith(result, "_"))
      result.pop_back();
    else
      result += isInName ? "#" : text.slice(i, end).str();
    i = end - 1;
  }
  return result;
}

std::string groupKey(const AttentionSite& site, const std::optional<MatchFailure>& refusal) {
  OrderedJson facts = factsJson(site);
  // A mask without proved properties is printed with the names of each layer's own values.
  bool isProved = site.mask && site.mask->causal != Proof::Unproven;
  facts["mask_text"] = isProved ? withoutLayers(site.mask->text) : "";
  std::string key =
      siteKindName(site).str() + facts.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  key +=
      formatted("|{}|{}|{}|{}", site.rule, headsText(site), layoutText(site), attentionText(site));
  if (site.failure)
    key += "|missed " + failureKey(*site.failure) + (site.nearMiss ? site.nearMiss->rule : "");
  if (refusal)
    key += "|refused " + failureKey(*refusal);
  return key;
}

} // namespace

std::string failureKey(const MatchFailure& failure) {
  return formatted("{}|{}|{}|{}", reasonName(failure.code), withoutLayers(failure.node),
                   withoutLayers(failure.expected), withoutLayers(failure.found));
}

std::vector<SiteGroup> groupSites(const RecoveredModel& recovered, const Target* target,
                                  std::optional<unsigned> layer) {
  std::vector<SiteGroup> groups;
  llvm::StringMap<size_t> byKey;
  std::vector<std::optional<MatchFailure>> failures;
  if (target) {
    failures =
        refusals(*target, recovered.context->sites, *recovered.model, recovered.context->reorder);
    keepApplicableHints(*target, failures, recovered.context->sites, *recovered.model,
                        recovered.context->targets, recovered.context->reorder);
  }
  for (const AttentionSite& site : recovered.context->sites) {
    if (layer && site.layer != *layer)
      continue;
    std::optional<MatchFailure> refusal;
    if (target)
      refusal = std::move(failures[site.layer]);
    auto [entry, isNew] = byKey.try_emplace(groupKey(site, refusal), groups.size());
    if (isNew) {
      groups.emplace_back();
      groups.back().first = &site;
      groups.back().refusal = std::move(refusal);
    }
    groups[entry->second].layers.push_back(site.layer);
    groups[entry->second].nodes.push_back(labelOf(*site.node));
  }
  return groups;
}

} // namespace kvopt::driver
