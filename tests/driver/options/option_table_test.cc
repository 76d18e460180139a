// The table of options is consistent, and docs/cli.md shows it.
#include "driver/options/option_table.h"

#include "driver/forms/form_table.h"
#include "ir/rows/row_code.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <sstream>

namespace kvopt {
using namespace driver;

namespace {

TEST(OptionTable, NamesAreUniqueInACommand) {
  for (unsigned i = 0; i < commandCount; ++i) {
    const auto command = static_cast<Command>(i);
    std::set<std::string> names;
    for (const OptionInfo* option : optionsOf(command)) {
      std::istringstream all(option->names);
      for (std::string name; std::getline(all, name, ',');) {
        EXPECT_TRUE(names.insert(name).second) << wordOf(command) << " " << name;
        EXPECT_EQ(findOption(command, name), option) << name;
      }
    }
    EXPECT_FALSE(names.empty()) << wordOf(command);
  }
  EXPECT_EQ(findOption(Command::Inspect, "--to"), nullptr);
}

TEST(OptionTable, EveryRowIsComplete) {
  std::vector<OptionInfo> all;
  for (const OptionSection& section : optionSections())
    all.insert(all.end(), section.options.begin(), section.options.end());
  EXPECT_GT(all.size(), 100u);
  for (const OptionInfo& option : all) {
    const std::string name(option.name());
    EXPECT_NE(option.commands, 0) << name;
    EXPECT_TRUE(std::string_view(option.sentence).ends_with('.')) << name;
    EXPECT_LE(option.least, option.most) << name;
    EXPECT_EQ(*option.values == 0, option.type == OptionType::Flag) << name;
    const std::vector<std::string> words = option.words();
    if (option.type == OptionType::Word && *option.defaultValue != 0) {
      EXPECT_NE(std::find(words.begin(), words.end(), option.defaultValue), words.end()) << name;
    }
    if (option.isArgument()) {
      EXPECT_EQ(name.find('-'), std::string::npos) << name;
    }
  }
}

TEST(OptionTable, KnowsEveryWordOfForms) {
  std::set<std::string> presets;
  for (const FormPreset& preset : formPresets())
    presets.insert(preset.name);
  for (Command command : {Command::Rewrite, Command::AddCache, Command::MakeDynamic,
                          Command::Explain, Command::Verify}) {
    const std::vector<std::string> words = findOption(command, "--to")->words();
    EXPECT_EQ(std::set<std::string>(words.begin(), words.end()), presets) << wordOf(command);
  }
  const auto has = [](const char* option, const char* word) {
    const std::vector<std::string> words = findOption(Command::Rewrite, option)->words();
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  for (const FormRow& row : formTable()) {
    EXPECT_TRUE(has("--cache", wordOf(row.cache)));
    EXPECT_TRUE(row.split == SplitKind::None || has("--split", wordOf(row.split)));
  }
  for (RowKind rows : allRowKinds)
    EXPECT_TRUE(has("--rows", wordOf(rows)));
  for (const ir::RowCode* code : ir::rowCodes())
    EXPECT_TRUE(has("--rows", code->word));
}

TEST(OptionTable, IsThatOfThePage) {
  std::ifstream stream(std::string(KVOPT_SOURCE_DIR) + "/docs/cli.md", std::ios::binary);
  std::ostringstream page;
  page << stream.rdbuf();
  EXPECT_TRUE(page.str().ends_with("\n\n" + optionsMarkdown()))
      << "paste to the end of docs/cli.md: kvopt list options --markdown";
}

} // namespace
} // namespace kvopt
