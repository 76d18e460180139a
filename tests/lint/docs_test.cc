// Pages agree with the tree: the paths they name exist, their links lead somewhere, and the tour of
// the architecture has every folder.
#include "tests/lint/source_files.h"

#include <map>
#include <optional>
#include <regex>
#include <set>

namespace kvopt {
namespace {

namespace fs = std::filesystem;

const fs::path& root() {
  static const fs::path folder = KVOPT_SOURCE_DIR;
  return folder;
}

bool isPage(std::string_view path) { return path.ends_with(".md"); }

/// README.md and its like, and the pages of docs, benchmarks, examples, models and layers.
const std::vector<SourceFile>& pages() {
  static const std::vector<SourceFile> all = [] {
    std::vector<SourceFile> found;
    for (const char* folder : {"docs", "bench", "examples", "models", "passes", "runtime", "ir"}) {
      std::vector<SourceFile> files = readFiles(folder, isPage);
      std::move(files.begin(), files.end(), std::back_inserter(found));
    }
    for (const char* path : {"README.md", "CONTRIBUTING.md"}) {
      std::ifstream stream(root() / path, std::ios::binary);
      EXPECT_TRUE(stream.good()) << path;
      std::ostringstream text;
      text << stream.rdbuf();
      found.push_back({path, text.str()});
    }
    EXPECT_GT(found.size(), 30u);
    return found;
  }();
  return all;
}

/// The page without its blocks of code.
std::string withoutBlocks(const SourceFile& page) {
  std::string text;
  bool isCode = false;
  for (const std::string& line : page.lines()) {
    const bool isFence = line.starts_with("```");
    isCode = isCode != isFence;
    text += isCode || isFence ? "\n" : line + "\n";
  }
  return text;
}

/// The words in backticks: those of a command one by one.
std::vector<std::string> quoted(const std::string& text) {
  static const std::regex span("`([^`\n]+)`");
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), span), end; at != end; ++at) {
    std::istringstream words((*at)[1]);
    for (std::string word; words >> word;)
      found.push_back(word);
  }
  return found;
}

/// What links point at, without addresses of other sites.
std::vector<std::string> relativeLinks(const std::string& text) {
  static const std::regex code("`[^`\n]*`");
  static const std::regex link(R"(\[[^\]]*\]\(([^)\s]+)\))");
  const std::string prose = std::regex_replace(text, code, "``");
  std::vector<std::string> found;
  for (std::sregex_iterator at(prose.begin(), prose.end(), link), end; at != end; ++at)
    if (const std::string target = (*at)[1]; target.find("://") == std::string::npos)
      found.push_back(target);
  return found;
}

/// The anchor of a heading, as hosts of repositories make it.
std::string anchorOf(std::string_view heading) {
  std::string anchor;
  for (char letter : heading)
    if (std::isalnum(static_cast<unsigned char>(letter)) || letter == '-' || letter == '_')
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    else if (letter == ' ')
      anchor += '-';
  return anchor;
}

std::set<std::string> anchorsOf(const SourceFile& page) {
  static const std::regex heading("#+ +(.*)");
  std::set<std::string> anchors;
  std::istringstream lines(withoutBlocks(page));
  std::smatch match;
  for (std::string line; std::getline(lines, line);)
    if (std::regex_match(line, match, heading))
      anchors.insert(anchorOf(match[1].str()));
  return anchors;
}

enum class Naming {
  None,   ///< no path: a command, an operator, a pattern of paths, a file that is made
  Path,   ///< a path with folders, or a folder
  Source, ///< the name of a source file without its folder
};

Naming namingOf(const std::string& text) {
  // Placeholders (`<stem>.cc`), patterns (`*.h`), variables and absolute paths are no such paths.
  static const std::regex path(R"([A-Za-z0-9_.][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)*/?)");
  static const std::regex extension(R"(.*\.(cc|h|cmake|md|py|sh|js|json|txt|onnx|onnxtxt|cfg))");
  if (!std::regex_match(text, path) || text.starts_with("build/"))
    return Naming::None;
  // Programs of bench/ and tests/ are named by the paths that they are built to.
  static const std::regex layer("(support|ir|passes|runtime|driver|cli|docs|cmake|scripts)/.+");
  if (text.ends_with("/") || std::regex_match(text, layer) ||
      (text.find('/') != text.npos && std::regex_match(text, extension)))
    return Naming::Path;
  return isSourcePath(text) && text.find('/') == text.npos ? Naming::Source : Naming::None;
}

/// Whether the path exists beneath the root or beneath the page's own folder.
bool exists(const std::string& page, const std::string& path) {
  return fs::exists(root() / path) || fs::exists(root() / fs::path(page).parent_path() / path);
}

const std::set<std::string>& sourceNames() {
  static const std::set<std::string> names = [] {
    std::set<std::string> all;
    for (const SourceFile& file : allSources())
      all.insert(fs::path(file.path).filename().string());
    return all;
  }();
  return names;
}

TEST(Docs, PathsAreRecognized) {
  EXPECT_EQ(namingOf("ir/graph.h"), Naming::Path);
  EXPECT_EQ(namingOf("ir/"), Naming::Path);
  EXPECT_EQ(namingOf("ir/ops"), Naming::Path);
  EXPECT_EQ(namingOf("graph.h"), Naming::Source);
  EXPECT_EQ(namingOf("block_parts-inl.h"), Naming::Source);
  for (const char* other :
       {"passes/rules/<stem>.cc", "*_lowering.{h,cc}", "build/release/bin/kvopt", "ai.kvopt::Sdpa",
        "/srv/a.onnx", "bf16/f32", "graph.node", "OUT.kv.json", "kvopt run"})
    EXPECT_EQ(namingOf(other), Naming::None) << other;
  EXPECT_TRUE(exists("docs/architecture.md", "ir/graph.h"));
  EXPECT_TRUE(exists("docs/architecture.md", "decisions/"));
  EXPECT_FALSE(exists("docs/architecture.md", "ir/grahp.h"));
}

TEST(Docs, SpansAndLinksAreRead) {
  const SourceFile page{"docs/a.md", "# A `b`: c\n```sh\n[x](gone.md) `gone/`\n```\n"
                                     "see [`d k`](e.md#f) `[g](h.md)`\nor [i\nj](../k.md), "
                                     "[l](https://m/n.md)\n"};
  const std::string text = withoutBlocks(page);
  EXPECT_EQ(quoted(text), (std::vector<std::string>{"b", "d", "k", "[g](h.md)"}));
  EXPECT_EQ(relativeLinks(text), (std::vector<std::string>{"e.md#f", "../k.md"}));
  EXPECT_EQ(anchorsOf(page), (std::set<std::string>{"a-b-c"}));
}

TEST(Docs, PathsExist) {
  size_t paths = 0;
  for (const SourceFile& page : pages())
    for (const std::string& text : quoted(withoutBlocks(page))) {
      const Naming naming = namingOf(text);
      if (naming == Naming::None)
        continue;
      ++paths;
      EXPECT_TRUE(naming == Naming::Path ? exists(page.path, text) : sourceNames().contains(text))
          << page.path << " names " << text;
    }
  EXPECT_GT(paths, 150u);
}

TEST(Docs, LinksLeadSomewhere) {
  std::map<std::string, std::set<std::string>> anchors;
  for (const SourceFile& page : pages())
    anchors[page.path] = anchorsOf(page);
  size_t links = 0;
  for (const SourceFile& page : pages())
    for (const std::string& link : relativeLinks(withoutBlocks(page))) {
      ++links;
      const size_t hash = link.find('#');
      const std::string file = link.substr(0, hash);
      const fs::path target = file.empty()
                                  ? fs::path(page.path)
                                  : (fs::path(page.path).parent_path() / file).lexically_normal();
      EXPECT_TRUE(fs::exists(root() / target)) << page.path << " links to " << link;
      const auto known = anchors.find(target.generic_string());
      EXPECT_TRUE(hash == link.npos || known == anchors.end() ||
                  known->second.contains(link.substr(hash + 1)))
          << page.path << " links to " << link;
    }
  EXPECT_GT(links, 100u);
}

/// A row of the tour: `folder/` | `kvopt::name` | … | `first.h`, `second.h`.
struct Room {
  std::string folder; ///< without the last slash
  std::string space;
  std::vector<std::string> names; ///< of files, in the whole row
};

std::optional<Room> roomOf(const std::string& line) {
  static const std::regex row(R"(\| `([a-z0-9_/]+)/` \| `([a-z:]+)` \|(.*))");
  std::smatch match;
  if (!std::regex_match(line, match, row))
    return std::nullopt;
  Room room{match[1], match[2], {}};
  for (const std::string& text : quoted(match[3]))
    if (namingOf(text) == Naming::Source)
      room.names.push_back(text);
  return room;
}

TEST(Docs, RowsOfTheTourAreRead) {
  const std::optional<Room> room = roomOf("| `ir/dims/` | `kvopt::ir` | extents | `dim.h` |");
  ASSERT_TRUE(room);
  EXPECT_EQ(room->folder, "ir/dims");
  EXPECT_EQ(room->space, "kvopt::ir");
  EXPECT_EQ(room->names, std::vector<std::string>{"dim.h"});
  EXPECT_FALSE(roomOf("| folder | namespace | what |"));
}

TEST(Docs, TheTourHasEveryFolderWithItsNamespace) {
  std::map<std::string, std::string> texts; // of each folder's sources
  for (const char* layer : {"support", "ir", "passes", "runtime", "driver", "cli", "api"})
    for (const SourceFile& file : readFiles(layer, isSourcePath))
      texts[file.path.substr(0, file.path.rfind('/'))] += file.text;
  EXPECT_GT(texts.size(), 40u);
  std::set<std::string> described;
  for (const SourceFile& page : pages()) {
    if (page.path != "docs/architecture.md")
      continue;
    for (const std::string& line : page.lines()) {
      const std::optional<Room> room = roomOf(line);
      if (!room)
        continue;
      described.insert(room->folder);
      // A folder of folders has no sources of its own.
      const auto text = texts.find(room->folder);
      EXPECT_TRUE(text == texts.end() ||
                  text->second.find("namespace " + room->space + " {") != std::string::npos)
          << room->folder << " is not of " << room->space;
      for (const std::string& name : room->names)
        EXPECT_TRUE(fs::exists(root() / room->folder / name)) << room->folder << " lacks " << name;
    }
  }
  for (const auto& [folder, text] : texts)
    EXPECT_TRUE(described.contains(folder)) << "docs/architecture.md has no row for " << folder;
}

} // namespace
} // namespace kvopt
