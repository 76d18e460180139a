// Attention layers, reasons and near misses as text.
#include "cli/report/explanation_report.h"

#include "driver/explain/cache_words.h"
#include "driver/inspect/site_facts.h"
#include "passes/analysis/cache/site_words.h"
#include "passes/pattern/reason_docs.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <nlohmann/json.hpp>

namespace kvopt::cli {
using namespace analysis;
using namespace driver;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* indent = "          ";

/// A shortened text. A mask without proved properties can fill a screen; the JSON has all of it.
std::string shortened(std::string text) {
  constexpr size_t most = 200;
  if (text.size() <= most)
    return text;
  size_t end = most;
  while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;
  return text.substr(0, end) + "…";
}

/// Lines `expected …`, `found …` and `hint: …`.
SafeText failureLines(const MatchFailure& failure) {
  SafeText out;
  if (!failure.expected.empty())
    out += formatText("{}expected  {}\n", indent, failure.expected);
  if (!failure.found.empty())
    out += formatText("{}found     {}\n", indent, failure.found);
  return out + formatText("{}hint: {}\n", indent, hintFor(failure));
}

SafeText headline(const MatchFailure& failure) {
  std::string text = reasonName(failure.code).str();
  return failure.node.empty() ? text : formatText("{} at '{}'", text, failure.node);
}

/// `RULE at 'ROOT': 4 nodes matched, then MatMul/0:Softmax`.
SafeText nearnessText(const NearMiss& miss) {
  // A path of one place is the root: the operators matched, but a condition failed.
  bool isPlace = llvm::StringRef(miss.path).contains('/');
  std::string then = miss.path.empty() ? "the rewrite" : isPlace ? miss.path : "its conditions";
  return formatText("{} at '{}': {} {} matched, then {}", miss.rule, miss.root, miss.matched,
                    miss.matched == 1 ? "node" : "nodes", then);
}

/// Near misses of attention outside of the listed layers: no softmax is left there.
SafeText strayMisses(const Explanation& explanation) {
  constexpr size_t mostShown = 5;
  std::vector<NearMiss> misses = explanation.attentionMisses();
  llvm::StringSet<> told;
  for (const AttentionSite& site : explanation.recovered.context->sites)
    if (site.nearMiss)
      told.insert(site.nearMiss->root);
  llvm::erase_if(misses, [&](const NearMiss& miss) { return told.contains(miss.root); });
  SafeText out;
  for (size_t i = 0; i < std::min(misses.size(), mostShown); ++i)
    out += formatText("    {}\n      {}\n", nearnessText(misses[i]), misses[i].failure.str());
  if (misses.size() > mostShown)
    out += formatText("    and {} more, all of them in --format json\n", misses.size() - mostShown);
  return out.empty() ? out : "  like attention, but no attention layer:\n" + out;
}

/// Columns as wide as their widest cell, counted in code points.
class Columns {
public:
  explicit Columns(llvm::ArrayRef<SiteGroup> groups) {
    for (const SiteGroup& group : groups) {
      widen(ranges, layerRanges(group.layers));
      widen(heads, escaped(headsText(*group.first)));
      widen(layout, escaped(layoutText(*group.first)));
    }
  }
  SafeText subject(const SiteGroup& group) const {
    return formatText("  {:<{}}  {:<5}  {:<{}}  {:<{}}", layerRanges(group.layers), ranges,
                      siteKindName(*group.first), headsText(*group.first), heads,
                      layoutText(*group.first), layout);
  }

private:
  static void widen(size_t& width, llvm::StringRef cell) {
    auto points = static_cast<size_t>(llvm::count_if(
        cell, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }));
    width = std::max(width, points);
  }
  size_t ranges = 6;
  size_t heads = 0;
  size_t layout = 0;
};

/// Lines `keys` and `values` with the results of evaluation.
SafeText factLines(const rows::AttentionFacts& facts) {
  if (!facts.missing.empty())
    return formatText("{}keys, values not known: {}\n", indent, facts.missing);
  return formatText("{}keys      {}\n{}values    {}\n", indent, cacheFactText(facts.key), indent,
                    cacheFactText(facts.value));
}

struct ExplanationStyle {
  Style style;
  bool detailed = false;
};

SafeText groupText(const SiteGroup& group, const rows::AttentionFacts& facts,
                   const Columns& columns, const Explanation& explanation,
                   const ExplanationStyle& shown) {
  const Style& style = shown.style;
  const AttentionSite& site = *group.first;
  const SafeText subject = columns.subject(group);
  SafeText out;
  if (site.isMatched()) {
    out = formatText("{}  {}  {}\n{}{}\n{}mask      {}\n", subject, style.good("matched"),
                     site.rule, indent, attentionText(site), indent, shortened(maskText(site)));
    out += factLines(facts);
  } else {
    out = formatText("{}  {}   {}\n", subject, style.bad("MISSED"), headline(*site.failure));
    out += factLines(facts);
    if (site.nearMiss && shown.detailed)
      out += formatText("{}nearest   {}\n", indent, nearnessText(*site.nearMiss));
    out += failureLines(*site.failure);
  }
  if (!explanation.target)
    return out;
  out += formatText("{}{}: ", indent, optionsOf(*explanation.form));
  if (!group.refusal)
    return out + style.good("taken") + "\n";
  bool same = site.failure && site.failure->str() == group.refusal->str();
  out += formatText("{}, {}\n", style.bad("refused"),
                    same ? "because it was missed" : headline(*group.refusal));
  return same ? out : out + failureLines(*group.refusal);
}

SafeText ruleText(const Explanation& explanation, const Style& style) {
  constexpr size_t mostShown = 20;
  const Rule& rule = *explanation.rule->rule;
  unsigned applied = explanation.recovered.context->journal.applications(rule.name());
  SafeText out = formatText("  rule {} ({}): applied {} times\n", rule.name(),
                            ruleGroupName(rule.group()), applied);
  std::vector<NearMiss> misses = explanation.ruleMisses();
  for (size_t i = 0; i < std::min(misses.size(), mostShown); ++i) {
    const NearMiss& miss = misses[i];
    out += formatText("    at '{}'  {} nodes{}\n      {}\n", miss.root, miss.matched,
                      miss.path.empty() ? "" : ", then " + miss.path, miss.failure.str());
  }
  if (misses.size() > mostShown)
    out += style.faint(formatText("    and {} roots more, all of them in --format json\n",
                                  misses.size() - mostShown));
  return out;
}

} // namespace

SafeText explanationText(const std::string& path, const Explanation& explanation,
                         const Style& style, bool detailed) {
  const PassContext& context = *explanation.recovered.context;
  llvm::SmallVector<unsigned, 32> taken;
  for (const SiteGroup& group : explanation.groups)
    if (explanation.target ? !group.refusal.has_value() : group.first->isMatched())
      taken.append(group.layers.begin(), group.layers.end());
  llvm::sort(taken);
  auto matched = static_cast<size_t>(
      llvm::count_if(context.sites, [](const AttentionSite& site) { return site.isMatched(); }));
  SafeText out =
      formatText("{}  opset {} · {} attention {}, {} matched\n", path, explanation.recovered.opset,
                 context.sites.size(), context.sites.size() == 1 ? "layer" : "layers", matched);
  for (const std::string& sentence : context.unequalExtents)
    out += formatText("  {}\n", sentence);
  if (context.sites.empty())
    out += "  nothing here weighs rows by a softmax over scores, and no operator is attention\n";
  size_t shown = 0;
  Columns columns(explanation.groups);
  for (const auto& pair : llvm::zip(explanation.groups, explanation.facts)) {
    const SiteGroup& group = std::get<0>(pair);
    out += groupText(group, std::get<1>(pair), columns, explanation, {style, detailed});
    shown += group.layers.size();
  }
  if (!taken.empty() && taken.size() < shown) {
    out +=
        formatText("  {} can be rewritten without the others: --require any\n", layerRanges(taken));
  }
  if (detailed)
    out += strayMisses(explanation);
  for (const auto& [pass, count] : explanation.givenUp())
    out += formatText("  {} in {}: the matcher gave up {} times; allow more with --step-budget\n",
                      style.bad("step-budget"), pass, count);
  if (explanation.rule)
    out += ruleText(explanation, style);
  return out;
}

} // namespace kvopt::cli
