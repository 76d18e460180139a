// Nothing in the project names the machine it was written on or leaves work for later in a comment.
#include "tests/lint/source_files.h"

#include <cctype>

namespace kvopt {
namespace {

bool isTextPath(std::string_view path) {
  for (std::string_view end : {".cc", ".h", ".cmake", ".txt", ".md", ".py", ".sh", ".json",
                               ".onnxtxt", ".cfg", ".yml", ".yaml", ".js"})
    if (path.ends_with(end))
      return path != "models/kjv/heldout.txt";
  return false;
}

std::vector<SourceFile> allTexts() {
  std::vector<SourceFile> all;
  for (const char* folder : {"support", "ir", "passes", "runtime", "driver", "cli", "tests",
                             "examples", "bench", "cmake", "docs", "models", "scripts"}) {
    std::vector<SourceFile> files = readFiles(folder, isTextPath);
    std::move(files.begin(), files.end(), std::back_inserter(all));
  }
  namespace fs = std::filesystem;
  for (const char* path : {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CMakeLists.txt",
                           "CMakePresets.json", ".ci/run"}) {
    std::ifstream stream(fs::path(KVOPT_SOURCE_DIR) / path, std::ios::binary);
    EXPECT_TRUE(stream.good()) << path;
    std::ostringstream text;
    text << stream.rdbuf();
    all.push_back({path, text.str()});
  }
  EXPECT_GT(all.size(), 100u);
  return all;
}

bool isWordByte(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) != 0 || byte == '_';
}

/// Whether `word` stands in `line` with no letter, digit or underscore on either side.
bool hasWord(std::string_view line, std::string_view word) {
  for (size_t at = line.find(word); at != line.npos; at = line.find(word, at + 1)) {
    bool startsHere = at == 0 || !isWordByte(line[at - 1]);
    size_t after = at + word.size();
    if (startsHere && (after == line.size() || !isWordByte(line[after])))
      return true;
  }
  return false;
}

/// Whether an absolute path beneath `folder` stands in `line`, not one within a path.
bool hasPath(std::string_view line, std::string_view folder) {
  for (size_t at = line.find(folder); at != line.npos; at = line.find(folder, at + 1))
    if (at == 0 || !(isWordByte(line[at - 1]) || line[at - 1] == '.' || line[at - 1] == '}'))
      return true;
  return false;
}

template <class Test> void expectNoLine(const Test& test, const std::string& what) {
  for (const SourceFile& file : allTexts()) {
    std::vector<std::string> lines = file.lines();
    for (size_t i = 0; i < lines.size(); ++i)
      EXPECT_FALSE(test(lines[i]))
          << file.path << ":" << i + 1 << " has " << what << ": " << lines[i];
  }
}

TEST(Words, PathsAreRecognised) {
  EXPECT_TRUE(hasPath("see \"/ho"
                      "me/a\"",
                      "/ho"
                      "me/"));
  EXPECT_FALSE(hasPath("tests/ho"
                       "me/a",
                       "/ho"
                       "me/"));
  EXPECT_TRUE(hasWord("// TO"
                      "DO: later",
                      "TO"
                      "DO"));
  EXPECT_FALSE(hasWord("MASTO"
                       "DON",
                       "TO"
                       "DO"));
}

// The words are written in two parts, so that this file does not contain them.
TEST(Words, NoPathsOfOneMachine) {
  for (std::string folder : {"/wo"
                             "rk/",
                             "/tm"
                             "p/wt",
                             "/ho"
                             "me/",
                             "/ro"
                             "ot/"})
    expectNoLine([&](std::string_view line) { return hasPath(line, folder); }, folder);
}

TEST(Words, NothingIsLeftForLater) {
  for (std::string word : {"TO"
                           "DO",
                           "FIX"
                           "ME",
                           "XX"
                           "X"})
    expectNoLine([&](std::string_view line) { return hasWord(line, word); }, word);
}

} // namespace
} // namespace kvopt
