// The table of forms for a terminal and as a section of docs/targets.md.
#include "driver/forms/form_table.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {

namespace {

/// One line of the printed table. Rows that are the same with `--latent` share a line.
struct GridLine {
  Engine engine;
  std::string cache; ///< with options that differ: `buffer, --latent`
  std::array<FormCell, rowKindCount> cells;
};

std::vector<GridLine> gridLines() {
  std::vector<GridLine> lines;
  for (const FormRow& row : formTable()) {
    std::string cache = wordOf(row.cache);
    if (row.split != SplitKind::None)
      cache += formatted(", {}", wordOf(row.split));
    if (row.cells == row.latent) {
      lines.push_back({row.engine, cache + ", also --latent", row.cells});
      continue;
    }
    lines.push_back({row.engine, cache, row.cells});
    lines.push_back({row.engine, cache + ", --latent", row.latent});
  }
  return lines;
}

/// The sentences of refused cells, each once, in the order of the table.
std::vector<std::string> refusalsOf(llvm::ArrayRef<GridLine> lines) {
  std::vector<std::string> sentences;
  for (const GridLine& line : lines)
    for (const FormCell& cell : line.cells)
      if (cell.refusal && !llvm::is_contained(sentences, cell.refusal))
        sentences.emplace_back(cell.refusal);
  return sentences;
}

size_t numberOf(const FormCell& cell, llvm::ArrayRef<std::string> sentences) {
  return static_cast<size_t>(llvm::find(sentences, cell.refusal) - sentences.begin()) + 1;
}

/// The options that are equivalent to a preset. `size` is `:N` if it accepts a number.
std::string expansionOf(const FormPreset& preset, const std::string& size) {
  std::string text = formatted("--to {}", wordOf(preset.engine));
  if (preset.split.value_or(SplitKind::None) != SplitKind::None)
    text += formatted(" --split {}{}", wordOf(*preset.split), size);
  else if (preset.cache && preset.opset != 23)
    text += formatted(" --cache {}{}", wordOf(*preset.cache), size);
  if (preset.rows)
    text += formatted(" --rows {}", wordOf(*preset.rows));
  if (preset.isLatent.value_or(false))
    text += " --latent";
  if (preset.opset)
    text += formatted(" --opset {}", *preset.opset);
  return text;
}

/// A target's preset and its options, with `:N` if it accepts a number.
struct PresetLine {
  std::string name;
  std::string options;
  std::string summary;
};

std::vector<PresetLine> presetLines(const targets::TargetRegistry& registry) {
  std::vector<PresetLine> lines;
  for (const std::unique_ptr<targets::Target>& target : registry.all()) {
    const FormPreset* preset = findPreset(target->name());
    const std::string size = target->defaultSize() > 0 ? ":N" : "";
    lines.push_back(
        {target->name().str(), preset ? expansionOf(*preset, size) : "", target->summary().str()});
  }
  return lines;
}

} // namespace

std::string formsText(const targets::TargetRegistry& registry) {
  const std::vector<GridLine> lines = gridLines();
  const std::vector<std::string> sentences = refusalsOf(lines);
  std::string text = formatted("  {:<10}{:<33}", "--to", "--cache");
  for (RowKind rows : allRowKinds)
    text += formatted("{:<13}", wordOf(rows));
  text.erase(text.find_last_not_of(' ') + 1);
  text += " (--rows)\n";
  for (const GridLine& line : lines) {
    text += formatted("  {:<10}{:<33}", wordOf(line.engine), line.cache);
    for (const FormCell& cell : line.cells)
      text += formatted("{:<13}", cell.isWritten() ? std::string(cell.target)
                                                   : formatted("({})", numberOf(cell, sentences)));
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  text += "\n  Not written:\n";
  for (size_t i = 0; i < sentences.size(); ++i)
    text += formatted("  {:>4} {}\n", formatted("({})", i + 1), sentences[i]);
  text += "\n  Presets, which --to takes as well:\n";
  for (const PresetLine& line : presetLines(registry))
    text += formatted("{:<13} {:<40} {}\n", line.name, line.options, line.summary);
  return text;
}

std::string formsMarkdown(const targets::TargetRegistry& registry) {
  const std::vector<GridLine> lines = gridLines();
  const std::vector<std::string> sentences = refusalsOf(lines);
  std::string text = "| `--to` | `--cache` |";
  for (RowKind rows : allRowKinds)
    text += formatted(" `--rows {}` |", wordOf(rows));
  text += "\n|---|---|---|---|---|---|---|\n";
  for (const GridLine& line : lines) {
    text += formatted("| `{}` | {} |", wordOf(line.engine), line.cache);
    for (const FormCell& cell : line.cells)
      text += cell.isWritten() ? formatted(" `{}` |", cell.target)
                               : formatted(" ({}) |", numberOf(cell, sentences));
    text += "\n";
  }
  text += "\nA number is the reason why a form is not written:\n\n";
  for (size_t i = 0; i < sentences.size(); ++i)
    text += formatted("{}. {}\n", i + 1, sentences[i]);
  text += "\n| preset | options | writes |\n|---|---|---|\n";
  for (const PresetLine& line : presetLines(registry))
    text += formatted("| `{}` | `{}` | {} |\n", line.name, line.options, line.summary);
  return text;
}

} // namespace kvopt::driver
