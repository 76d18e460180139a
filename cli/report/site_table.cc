// Table of several models.
#include "cli/report/site_table.h"

#include "cli/support/style.h"
#include "driver/inspect/site_facts.h"
#include "passes/analysis/cache/site_words.h"
#include "support/format.h"
#include "support/json.h"

#include "llvm/ADT/STLExtras.h"

#include <filesystem>

namespace kvopt::cli {
using namespace analysis;
using namespace driver;
using namespace pattern;

namespace {

constexpr char columns[] = "{:<56}  {:>5}  {:>7}  {:<14}  {:<6}  {:<6}  {:<7}  {:<9}  {:<12}  "
                           "{:<8}  {}";

SafeText line(const std::string& name, const std::string& sites, const std::string& matched,
              const std::string& kind, const std::string& causal, const std::string& window,
              const std::string& softcap, const std::string& scale, const std::string& heads,
              const std::string& layout, const std::string& missed) {
  const std::string text = formatText(columns, name, sites, matched, kind, causal, window, softcap,
                                      scale, heads, layout, missed)
                               .str();
  return SafeText::trusted(text.substr(0, text.find_last_not_of(' ') + 1) + "\n");
}

/// Values in the order of their first appearance, with their counts.
class Tally {
public:
  void add(std::string value) {
    for (auto& entry : entries)
      if (entry.first == value) {
        ++entry.second;
        return;
      }
    entries.emplace_back(std::move(value), 1u);
  }
  std::string values() const { return join(false); }
  std::string counted() const { return join(true); }

private:
  std::string join(bool withCounts) const {
    std::string text;
    for (const auto& [value, count] : entries) {
      text += text.empty() ? "" : ",";
      text += withCounts ? formatted("{}:{}", value, count) : value;
    }
    return text.empty() ? "-" : text;
  }
  std::vector<std::pair<std::string, unsigned>> entries;
};

std::string cacheLayout(const AttentionSite& site) {
  if (!site.hasCache())
    return "-";
  auto text = [](const SiteCache& update) {
    std::string layout = update.layout.text();
    return formatted("{}@{}", layout.empty() ? "?" : layout, update.axis);
  };
  std::string key = text(*site.key);
  std::string value = text(*site.value);
  return key == value ? key : key + "+" + value;
}

} // namespace

std::vector<std::string> tableNames(llvm::ArrayRef<std::string> paths) {
  namespace fs = std::filesystem;
  std::vector<std::vector<std::string>> parts;
  for (const std::string& path : paths) {
    std::vector<std::string> names;
    for (const fs::path& name : fs::path(path).lexically_normal())
      names.push_back(name.string());
    if (names.size() > 1 && names.back() == "model.onnx")
      names.pop_back();
    parts.push_back(std::move(names));
  }
  size_t shared = 0;
  auto isShared = [&] {
    return llvm::all_of(parts, [&](const std::vector<std::string>& names) {
      return shared + 1 < names.size() && names[shared] == parts.front()[shared];
    });
  };
  while (!parts.empty() && isShared())
    ++shared;
  std::vector<std::string> result;
  for (const std::vector<std::string>& names : parts) {
    fs::path rest;
    for (size_t i = shared; i < names.size(); ++i)
      rest /= names[i];
    result.push_back(rest.string());
  }
  return result;
}

SafeText tableHead() {
  return line("model", "sites", "matched", "kind", "causal", "window", "softcap", "scale", "heads",
              "layout", "missed");
}

SafeText tableRow(const std::string& name, const SiteList& sites) {
  unsigned matched = 0;
  Tally kinds;
  Tally causal;
  Tally windows;
  Tally softcaps;
  Tally scales;
  Tally heads;
  Tally layouts;
  Tally missed;
  for (const AttentionSite& site : sites) {
    if (!site.isMatched()) {
      missed.add(reasonName(site.failure->code).str());
      continue;
    }
    ++matched;
    OrderedJson facts = factsJson(site);
    kinds.add(siteKindName(site).str());
    bool isOpen = !site.mask || site.mask->causal == Proof::Unproven;
    if (!facts["causal_if"].is_null())
      causal.add("if"); // the given positions increase
    else
      causal.add(isOpen ? "?" : facts["causal"].get<bool>() ? "yes" : "no");
    int64_t window = facts["window"].get<int64_t>();
    windows.add(window == 0 ? "-" : formatted("{}", window));
    double softcap = facts["softcap"].get<double>();
    softcaps.add(softcap == 0 ? "-" : formatted("{:.6g}", softcap));
    scales.add(facts["scale"].is_null() ? "-" : formatted("{:.6g}", facts["scale"].get<double>()));
    heads.add(headCounts(site));
    layouts.add(cacheLayout(site));
  }
  return line(name, std::to_string(sites.size()), std::to_string(matched), kinds.counted(),
              causal.values(), windows.values(), softcaps.values(), scales.values(), heads.values(),
              layouts.values(), missed.counted());
}

SafeText tableErrorRow(const std::string& name) {
  return line(name, "-", "-", "-", "-", "-", "-", "-", "-", "-", "unreadable");
}

} // namespace kvopt::cli
