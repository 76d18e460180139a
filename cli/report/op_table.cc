// Lists and tables of operators.
#include "cli/report/op_table.h"

#include "cli/support/style.h"
#include "support/format.h"

#include <algorithm>

namespace kvopt::cli {
using namespace driver;

namespace {

int64_t countIn(const OpCounts& counts, const std::string& name) {
  auto found = counts.find(name);
  return found == counts.end() ? 0 : found->second;
}

std::string line(const char* text, size_t width) {
  std::string out;
  for (size_t i = 0; i < width; ++i)
    out += text;
  return out;
}

} // namespace

SafeText opList(const OpCounts& counts) {
  SafeText text;
  for (const auto& [name, count] : counts) {
    text += formatText("{}{}", text.empty() ? "" : ", ", name);
    if (count > 1)
      text += formatText(" ×{}", count);
  }
  return text.empty() ? SafeText("–") : text;
}

SafeText opTable(const OpCounts& before, const OpCounts& after,
                 const std::vector<SafeText>& beside) {
  OpCounts all = before;
  all.insert(after.begin(), after.end());
  std::vector<std::string> names;
  size_t width = 2;
  for (const auto& entry : all)
    if (countIn(before, entry.first) != countIn(after, entry.first)) {
      names.push_back(entry.first);
      width = std::max(width, escaped(entry.first).size());
    }
  SafeText out;
  auto add = [&, row = size_t{0}](const SafeText& text) mutable {
    out += "  " + text;
    if (row < beside.size() && !beside[row].empty())
      out += "   " + beside[row];
    ++row;
    out += "\n";
  };
  if (names.empty()) {
    for (const SafeText& text : beside)
      out += "  " + text + "\n";
    return out;
  }
  const std::string bar = line("─", width + 2);
  auto row = [&](const std::string& name, const std::string& b, const std::string& a,
                 const std::string& change) {
    add(formatText("│ {:<{}} │ {:>6} │ {:>6} │ {:>6} │", name, width, b, a, change));
  };
  add("┌" + bar + "┬────────┬────────┬────────┐");
  row("op", "before", "after", "Δ");
  for (const std::string& name : names) {
    const int64_t b = countIn(before, name);
    const int64_t a = countIn(after, name);
    row(name, std::to_string(b), std::to_string(a), formatted("{:+}", a - b));
  }
  add("└" + bar + "┴────────┴────────┴────────┘");
  return out;
}

} // namespace kvopt::cli
