// A rule has its two tests; a header says what it is for.
#include "tests/lint/source_files.h"

namespace kvopt {
namespace {

TEST(Naming, EveryRuleHasItsTestAndItsNearMiss) {
  namespace fs = std::filesystem;
  const fs::path root = KVOPT_SOURCE_DIR;
  std::vector<SourceFile> rules = readFiles("passes/rules", isSourcePath);
  EXPECT_FALSE(rules.empty());
  for (const SourceFile& rule : rules) {
    std::string stem = fs::path(rule.path).stem().string();
    for (const char* suffix : {".onnxtxt", "_near_miss.onnxtxt"}) {
      std::string test = "tests/passes/rules/" + stem + suffix;
      EXPECT_TRUE(fs::is_regular_file(root / test)) << rule.path << " needs " << test;
    }
  }
}

TEST(Naming, EveryFileStartsWithWhatItIsFor) {
  for (const SourceFile& file : allSources())
    EXPECT_TRUE(file.text.starts_with("// ")) << file.path << " starts with no comment";
}

TEST(Naming, EveryHeaderHasAGuard) {
  size_t headers = 0;
  for (const SourceFile& file : allSources()) {
    // Highway includes an "-inl.h" once for each target; it guards itself.
    if (!file.isHeader() || file.path.ends_with("-inl.h"))
      continue;
    ++headers;
    std::vector<std::string> lines = file.lines();
    EXPECT_TRUE(std::find(lines.begin(), lines.end(), "#pragma once") != lines.end())
        << file.path << " has no #pragma once";
  }
  EXPECT_GT(headers, 50u);
}

} // namespace
} // namespace kvopt
