// Facts about attention layers.
#include "driver/inspect/site_facts.h"

#include "passes/analysis/cache/site_words.h"
#include "passes/pattern/reason_docs.h"
#include "support/format.h"
#include "support/json.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

OrderedJson number(const Dim& extent) {
  if (std::optional<int64_t> value = extent.value())
    return *value;
  return nullptr;
}

bool isRaised(const AttentionSite& site) { return site.node->op() == OpName("ai.kvopt::Sdpa"); }

std::string extentText(const Dim& extent) { return extent.isUnknown() ? "?" : extent.str(); }

} // namespace

std::string maskKind(const Node& attention) {
  const Value* mask = attention.operand(3);
  bool causal = attention.intAttr("causal", 0) != 0;
  if (!mask)
    return causal ? "causal" : "none";
  return mask->type().elementType() == ElementType::Bool ? "boolean" : "additive";
}

OrderedJson factsJson(const AttentionSite& site) {
  bool raised = isRaised(site);
  OrderedJson json;
  json["q_heads"] = number(site.queryHeads);
  json["kv_heads"] = number(site.keyHeads);
  json["k_head_dim"] = number(site.keyWidth);
  json["v_head_dim"] = number(site.valueWidth);
  auto layout = [](const std::optional<SiteCache>& update) {
    return update && update->layout.isKnown() ? OrderedJson(update->layout.text())
                                              : OrderedJson(nullptr);
  };
  json["policy"] = sitePolicyName(site).str();
  json["layout"] = layout(site.key);
  json["value_layout"] = layout(site.value);
  json["key_axis"] = site.key ? OrderedJson(site.key->axis) : nullptr;
  json["value_axis"] = site.value ? OrderedJson(site.value->axis) : nullptr;
  // A mask may depend on the given positions; then it is causal under the condition `causal_if`.
  const auto* counting = site.mask && site.mask->causalIf ? &*site.mask->causalIf : nullptr;
  json["causal"] = site.mask && (site.mask->causal == Proof::Proved || counting);
  json["causal_if"] = counting ? OrderedJson(counting->text) : nullptr;
  json["window"] = site.window();
  json["softcap"] = raised ? static_cast<double>(site.node->floatAttr("softcap", 0)) : 0.0;
  json["scale"] = raised ? OrderedJson(site.node->floatAttr("scale", 1)) : nullptr;
  json["mask"] = raised ? OrderedJson(maskKind(*site.node)) : nullptr;
  json["mask_causal"] = site.mask ? OrderedJson(proofName(site.mask->causal).str()) : nullptr;
  json["mask_text"] = site.mask ? OrderedJson(site.mask->text) : nullptr;
  return json;
}

std::string headCounts(const AttentionSite& site) {
  if (site.queryHeads.isUnknown() && site.keyHeads.isUnknown() && site.keyWidth.isUnknown())
    return "";
  std::string text = formatted("{}/{}×{}", extentText(site.queryHeads), extentText(site.keyHeads),
                               extentText(site.keyWidth));
  if (!site.valueWidth.isKnownEqual(site.keyWidth))
    text += "/" + extentText(site.valueWidth);
  return text;
}

std::string headsText(const AttentionSite& site) {
  std::string counts = headCounts(site);
  if (counts.empty())
    return "";
  if (!site.queryHeads.isKnownEqual(site.keyHeads))
    return (site.keyHeads.value() == 1 ? "MQA " : "GQA ") + counts;
  size_t slash = counts.find('/');
  return "MHA " + counts.erase(slash, counts.find("×") - slash);
}

std::string layoutText(const AttentionSite& site) {
  if (!site.hasCache())
    return "";
  auto extents = [](const Value& past) {
    if (!past.type().hasRank())
      return std::string("[?]");
    std::string text;
    for (const Dim& extent : past.type().shape())
      text += (text.empty() ? "[" : ",") + extentText(extent);
    return text + "]";
  };
  std::string key = extents(*site.key->past);
  std::string value = extents(*site.value->past);
  // Update of the cache, unless it is concatenation; the kind of a cross cache already implies it.
  bool isPlain = (site.update == CacheUpdate::Grows && !site.isLatent()) ||
                 site.update == CacheUpdate::ReadOnly;
  std::string policy = isPlain ? "" : formatted(" {}", sitePolicyName(site));
  if (key == value && site.key->axis == site.value->axis)
    return formatted("{} axis {}{}", key, site.key->axis, policy);
  return formatted("{} axis {} and {} axis {}{}", key, site.key->axis, value, site.value->axis,
                   policy);
}

std::string attentionText(const AttentionSite& site) {
  if (!isRaised(site))
    return "";
  const Node& node = *site.node;
  std::string text;
  if (site.mask && site.mask->causalIf)
    text = "causal if " + site.mask->causalIf->text;
  else if (!site.mask || site.mask->causal == Proof::Unproven)
    text = "causal not proved";
  else
    text = site.mask->causal == Proof::Proved ? "causal" : "not causal";
  if (int64_t window = site.window())
    text += formatted(" · window {}", window);
  if (float cap = node.floatAttr("softcap", 0); cap != 0)
    text += formatted(" · softcap {:.6g}", cap);
  text += formatted(" · scale {:.6g}", node.floatAttr("scale", 1));
  if (node.operand(4))
    text += " · sinks";
  return text;
}

std::string maskText(const AttentionSite& site) {
  if (!isRaised(site))
    return "";
  const Value* mask = site.node->operand(3);
  std::string text = mask ? formatted("{} {}", maskKind(*site.node), mask->type().str()) : "none";
  if (!site.mask)
    return text;
  if (mask && !site.mask->text.empty())
    text += ": " + site.mask->text;
  if (site.mask->causal == Proof::Refuted && !site.mask->counterExample.empty())
    text += "; " + site.mask->counterExample;
  if (!site.mask->isExact)
    text += formatted("; hidden keys get {:.6g}", site.mask->hiddenValue);
  return text;
}

OrderedJson reasonJson(const MatchFailure& failure) {
  return {{"code", reasonName(failure.code).str()},
          {"node", failure.node},
          {"expected", failure.expected},
          {"found", failure.found},
          {"hint", hintFor(failure)}};
}

std::string layerRanges(llvm::ArrayRef<unsigned> layers) {
  std::string text;
  for (size_t first = 0; first < layers.size();) {
    size_t last = first;
    unsigned step = first + 1 < layers.size() ? layers[first + 1] - layers[first] : 0;
    while (last + 1 < layers.size() && layers[last + 1] - layers[last] == step)
      ++last;
    // Two layers that are not adjacent are listed separately, not as a progression.
    if (step > 1 && last - first < 2)
      last = first;
    if (!text.empty())
      text += ", ";
    text += formatted("L{}", layers[first]);
    if (last != first)
      text += formatted("–L{}", layers[last]);
    if (last != first && step > 1)
      text += formatted(" by {}", step);
    first = last + 1;
  }
  return text;
}

} // namespace kvopt::driver
