// Differences of models as text.
#include "cli/report/op_table.h"
#include "cli/support/style.h"
#include "driver/diff/model_difference.h"
#include "driver/inspect/site_facts.h"

#include "support/format.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::cli {
using namespace analysis;
using namespace driver;
using namespace ir;
using namespace pattern;

namespace {

/// The text without numbers: names of different layers then agree.
std::string withoutNumbers(llvm::StringRef text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i)
    if (!llvm::isDigit(text[i]))
      result += text[i];
    else if (result.empty() || result.back() != '#')
      result += '#';
  return result;
}

SafeText interfaceLine(const InterfaceChange& change) {
  switch (change.change) {
  case Change::Added:
    return formatText("+ {}  {}", change.after, change.typeAfter);
  case Change::Removed:
    return formatText("- {}  {}", change.before, change.typeBefore);
  case Change::Renamed:
    return formatText("~ {} → {}  {}", change.before, change.after, change.typeAfter);
  default:
    return formatText("~ {}  {} → {}", change.after, change.typeBefore, change.typeAfter);
  }
}

/// One line for changes that differ only in numbers of layers.
SafeText interfaceText(const char* heading, const std::vector<InterfaceChange>& changes) {
  struct Group {
    const InterfaceChange* first;
    size_t count;
  };
  std::vector<Group> groups;
  llvm::StringMap<size_t> byKey;
  for (const InterfaceChange& change : changes) {
    const std::string key =
        formatted("{}|{}|{}|{}|{}", static_cast<int>(change.change), withoutNumbers(change.before),
                  withoutNumbers(change.after), change.typeBefore, change.typeAfter);
    auto [entry, isNew] = byKey.try_emplace(key, groups.size());
    if (isNew)
      groups.push_back({&change, 0});
    ++groups[entry->second].count;
  }
  SafeText text = groups.empty() ? "" : formatText("  {}\n", heading);
  for (const Group& group : groups) {
    text += "    " + interfaceLine(*group.first);
    if (group.count > 1)
      text += formatText("   and {} more like it", group.count - 1);
    text += "\n";
  }
  return text;
}

SafeText blockText(const BlockChange& block) {
  if (block.change == Change::Same)
    return "unchanged";
  auto side = [](const AttentionSubgraph* one) {
    return !one ? SafeText("none") : opList(one->ops());
  };
  SafeText text = formatText("{}\n      → {}", side(block.before), side(block.after));
  if (block.after && block.after->oneBuffer && !(block.before && block.before->oneBuffer))
    text += "; past and present in one buffer";
  return text;
}

SafeText blocksText(const std::vector<BlockChange>& blocks) {
  struct Group {
    std::string kind;
    SafeText text;
    std::vector<unsigned> layers;
  };
  std::vector<Group> groups;
  llvm::StringMap<size_t> byKey;
  for (const BlockChange& block : blocks) {
    const std::string kind = block.either().kind.str();
    const SafeText text = blockText(block);
    auto [entry, isNew] = byKey.try_emplace(kind + text.str(), groups.size());
    if (isNew)
      groups.push_back({kind, text, {}});
    groups[entry->second].layers.push_back(block.either().layer);
  }
  SafeText out = groups.empty() ? "" : "  attention\n";
  for (const Group& group : groups)
    out += formatText("    {}  {}  {}\n", layerRanges(group.layers), group.kind, group.text);
  return out;
}

SafeText opsetsText(const OpsetImports& before, const OpsetImports& after) {
  SafeText text;
  auto label = [](const std::string& domain) {
    return domain.empty() ? std::string("opset") : "opset of " + domain;
  };
  for (const auto& [domain, version] : before) {
    auto now = after.find(domain);
    if (now == after.end())
      text += formatText("  {} {} → none\n", label(domain), version);
    else if (now->second != version)
      text += formatText("  {} {} → {}\n", label(domain), version, now->second);
  }
  for (const auto& [domain, version] : after)
    if (!before.count(domain))
      text += formatText("  {} none → {}\n", label(domain), version);
  return text;
}

} // namespace

SafeText differenceText(const std::string& pathBefore, const std::string& pathAfter,
                        const ModelDifference& difference) {
  SafeText text = formatText("{} → {}\n", pathBefore, pathAfter);
  if (difference.isEmpty())
    return text + "  no difference in operators, opsets, inputs, outputs and attention\n";
  text += opTable(difference.opsBefore, difference.opsAfter);
  text += opsetsText(difference.opsetsBefore, difference.opsetsAfter);
  if (difference.irBefore != difference.irAfter)
    text += formatText("  IR version {} → {}\n", difference.irBefore, difference.irAfter);
  text += interfaceText("inputs", difference.inputs);
  text += interfaceText("outputs", difference.outputs);
  return text + blocksText(difference.blocks);
}

} // namespace kvopt::cli
