// The keys of manifests are spelled in their tables only.
#include "tests/lint/source_files.h"

#include <regex>
#include <set>

namespace kvopt {
namespace {

bool isTable(const SourceFile& file) { return file.path.ends_with("_fields.cc"); }

TEST(ManifestKeys, AreSpelledInTheirTablesOnly) {
  const std::vector<SourceFile> files = readFiles("ir/manifest", isSourcePath);
  static const std::regex row(R"re(\.key = "(\w+)")re");
  std::set<std::string> keys;
  for (const SourceFile& file : files)
    if (isTable(file))
      for (std::sregex_iterator at(file.text.begin(), file.text.end(), row), end; at != end; ++at)
        keys.insert((*at)[1]);
  EXPECT_GT(keys.size(), 50u);
  size_t checked = 0;
  for (const SourceFile& file : files) {
    // Some values of keys, some words of recipes, and some names of a tile's inputs are words that
    // are keys elsewhere.
    if (isTable(file) || file.path.ends_with("/manifest_words.h") ||
        file.path.ends_with("/input_recipe.cc") || file.path.ends_with("/tile_names.h"))
      continue;
    ++checked;
    for (const std::string& key : keys)
      for (const char quote : {'"', '\''})
        EXPECT_EQ(file.text.find(quote + key + quote), std::string::npos)
            << file.path << " spells the key " << key;
  }
  EXPECT_GT(checked, 10u);
}

} // namespace
} // namespace kvopt
