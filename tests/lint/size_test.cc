// A function fits on a screen or two, and a class is read in one sitting. Files have no limit: they
// end where their concept does.
#include "tests/lint/source_files.h"

#include <map>
#include <regex>
#include <set>

namespace kvopt {
namespace {

constexpr size_t mostFunctionLines = 110;
constexpr size_t mostClassLines = 400;

struct Block {
  std::string head; ///< its first line
  size_t lines = 0;
  bool isClass = false;
};

/// The functions and classes of a formatted file, with the functions that are defined in a class: a
/// declaration starts at the edge of its scope and its last brace stands alone there.
std::vector<Block> blocksOf(const std::vector<std::string>& lines) {
  static const std::regex outside(R"((namespace|extern "C"|#|//|\}|using |HWY_).*)");
  static const std::regex classHead(R"((template <.*> *)?(class|struct|enum|union)\b.*)");
  std::vector<Block> blocks;
  for (size_t at = 0; at < lines.size(); ++at) {
    const std::string& line = lines[at];
    if (line.empty() || line[0] == ' ' || std::regex_match(line, outside))
      continue;
    size_t open = at;
    while (open < lines.size() && !lines[open].ends_with("{") && !lines[open].ends_with(";") &&
           !lines[open].ends_with("}"))
      ++open;
    if (open == lines.size() || !lines[open].ends_with("{"))
      continue;
    size_t end = open;
    while (end < lines.size() && !lines[end].starts_with("}"))
      ++end;
    std::string head;
    for (size_t k = at; k <= open; ++k)
      head += lines[k] + " ";
    const bool isClass = std::regex_match(head, classHead);
    const bool isTable =
        !isClass && head.find(" = ") != std::string::npos && head.find('(') == std::string::npos;
    if (!isTable)
      blocks.push_back({line, end - at + 1, isClass});
    if (isClass) {
      std::vector<std::string> inner;
      for (size_t k = open + 1; k < end; ++k)
        inner.push_back(lines[k].starts_with("  ") ? lines[k].substr(2) : "");
      for (Block& block : blocksOf(inner))
        blocks.push_back(std::move(block));
    }
    at = end;
  }
  return blocks;
}

bool isProduct(const SourceFile& file) {
  return !file.isIn("tests/") && !file.isIn("examples/") && !file.isIn("bench/");
}

TEST(Size, BlocksAreFound) {
  const std::vector<Block> blocks =
      blocksOf({"int f(int a,", "      int b) {", "  return 0;", "}", "class A {", "  void g() {",
                "    h();", "  }", "};", "constexpr int table[] = {", "    1,", "};", "int x;"});
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].lines, 4u);
  EXPECT_TRUE(blocks[1].isClass);
  EXPECT_EQ(blocks[1].lines, 5u);
  EXPECT_EQ(blocks[2].head, "void g() {");
  EXPECT_EQ(blocks[2].lines, 3u);
}

TEST(Size, FunctionsAndClassesCanBeRead) {
  size_t functions = 0;
  for (const SourceFile& file : allSources()) {
    if (!isProduct(file))
      continue;
    for (const Block& block : blocksOf(file.lines())) {
      EXPECT_LE(block.lines, block.isClass ? mostClassLines : mostFunctionLines)
          << file.path << ": " << block.head;
      functions += block.isClass ? 0 : 1;
    }
  }
  EXPECT_GT(functions, 2000u);
}

TEST(Size, AClassIsDefinedInOneFile) {
  // A member's definition outside its class: `Type Class::member(`.
  static const std::regex member(R"(([A-Za-z][^()=]*[ &*])?([A-Z]\w*)::~?\w+\(.*)");
  std::map<std::string, std::set<std::string>> files;
  for (const SourceFile& file : allSources()) {
    if (!isProduct(file) || file.isHeader())
      continue;
    std::smatch match;
    for (const std::string& line : file.lines())
      if (std::regex_match(line, match, member) && !line.ends_with(";"))
        files[match[2].str()].insert(file.path);
  }
  EXPECT_GT(files.size(), 50u);
  // Classes of one name in two folders are two classes.
  for (const auto& [name, paths] : files) {
    std::set<std::string> folders;
    for (const std::string& path : paths)
      folders.insert(path.substr(0, path.rfind('/')));
    EXPECT_EQ(folders.size(), paths.size())
        << name << " is cut into " << *paths.begin() << " and " << *paths.rbegin();
  }
}

} // namespace
} // namespace kvopt
