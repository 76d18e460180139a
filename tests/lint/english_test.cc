// Comments, messages and pages are written in plain English: the phrases below are not.
#include "tests/lint/prose.h"

#include <iostream>
#include <map>

namespace kvopt {
namespace {

/// A phrase to avoid. Its words are separated by spaces, alternatives by '|'; "^" is the start of a
/// sentence, "..." is any words of the same sentence.
struct Phrase {
  std::string_view words;
  unsigned where;
  std::string_view instead;
};

constexpr Phrase phrases[] = {
    {"^ what", comment, "name the thing: \"Bytes that the cache takes.\""},
    {"^ why", comment, "\"Reason that ...\""},
    {"^ of", comment, "a sentence whose subject is the thing"},
    {"stand|stands|stood|standing", anyProse, "is, appears"},
    {"lie|lies|lying", anyProse, "is, is stored"},
    {"so|as many", anyProse, "the number of ..., the same number"},
    {"is|are no", anyProse, "\"is not a\""},
    {"behind|beside|besides", anyProse, "after, next to, compared with, in addition to"},
    {"of which", anyProse, "two sentences"},
    {"told|tell|tells|telling", anyProse, "receives, indicates, distinguishes"},
    {"whoever|nobody", anyProse, "name the actor"},
    {"as it lies", anyProse, "in the order in which it is stored"},
    {"unless ... but where", anyProse, "say when it is accepted"},
    {"site|sites", message | page, "attention layer"},
    {"contract|contracts", message | page, "how to drive the model"},
};

/// Words before and after "is no" that make it ordinary English: "there is no", "is no longer".
constexpr std::string_view beforeNo[] = {"there"};
constexpr std::string_view afterNo[] = {"longer", "more",  "less",  "larger", "smaller", "later",
                                        "wider",  "fewer", "lower", "higher", "greater"};

/// Findings that are right as they are.
struct EnglishException {
  std::string_view path;
  std::string_view words; ///< of the phrase
  size_t findings;
  std::string_view reason;
};

constexpr EnglishException englishExceptions[] = {
    {"docs/architecture.md", "site|sites", 1, "defines the word of the sources"},
    {"runtime/session/input_plan.cc", "behind|beside|besides", 1, "apart from caches"},
    {"runtime/session/interface_check.cc", "contract|contracts", 2, "names the manifest's key"},
};

/// Folders and pages whose English has not been read yet.
constexpr std::string_view notReadYet[] = {"docs/decisions/"};

std::vector<std::string> wordsOf(std::string_view phrase, char separator) {
  std::vector<std::string> words;
  std::istringstream stream{std::string(phrase)};
  for (std::string word; std::getline(stream, word, separator);)
    words.push_back(word);
  return words;
}

/// Whether the phrase's words from `step` are those of `unit` from `at`.
bool matches(const std::vector<ProseWord>& words, size_t at, const std::vector<std::string>& steps,
             size_t step = 0) {
  if (step == steps.size())
    return true;
  if (steps[step] == "^")
    return words[at].startsSentence && matches(words, at, steps, step + 1);
  if (steps[step] == "...") {
    for (; at < words.size() && !words[at].startsSentence; ++at)
      if (matches(words, at, steps, step + 1))
        return true;
    return false;
  }
  if (at == words.size())
    return false;
  const std::vector<std::string> choices = wordsOf(steps[step], '|');
  return std::find(choices.begin(), choices.end(), words[at].text) != choices.end() &&
         matches(words, at + 1, steps, step + 1);
}

/// Whether "is no" at `at` is ordinary English.
bool isOrdinaryNo(const std::vector<ProseWord>& words, size_t at) {
  const auto has = [](const auto& list, const std::string& word) {
    return std::find(std::begin(list), std::end(list), word) != std::end(list);
  };
  return (at > 0 && has(beforeNo, words[at - 1].text)) ||
         (at + 2 < words.size() && has(afterNo, words[at + 2].text));
}

/// The lines of `units` with the phrase. Literals of one or two words are names, not messages.
std::vector<size_t> linesWith(const Phrase& phrase, const std::vector<ProseUnit>& units) {
  std::vector<size_t> lines;
  const std::vector<std::string> steps = wordsOf(phrase.words, ' ');
  for (const ProseUnit& unit : units) {
    if ((phrase.where & unit.kind) == 0 || (unit.kind == message && unit.words.size() < 3))
      continue;
    for (size_t at = 0; at < unit.words.size(); ++at)
      if (matches(unit.words, at, steps) &&
          !(phrase.words == "is|are no" && isOrdinaryNo(unit.words, at)))
        lines.push_back(unit.words[at].line);
  }
  return lines;
}

struct EnglishFile {
  std::string path;
  std::vector<ProseUnit> units;
};

/// The product's sources and pages.
std::vector<EnglishFile> englishFiles() {
  std::vector<EnglishFile> files;
  const auto isCode = [](std::string_view path) {
    return isSourcePath(path) || path.ends_with(".hpp");
  };
  for (const char* folder : {"support", "ir", "passes", "runtime", "driver", "cli", "examples",
                             "bench", "include", "api"})
    for (const SourceFile& file : readFiles(folder, isCode))
      files.push_back({file.path, unitsOfSource(file)});
  const auto isPage = [](std::string_view path) { return path.ends_with(".md"); };
  for (const SourceFile& file : readFiles("docs", isPage))
    files.push_back({file.path, unitsOfPage(file)});
  for (const char* path : {"README.md", "CONTRIBUTING.md"}) {
    std::ifstream stream(std::filesystem::path(KVOPT_SOURCE_DIR) / path, std::ios::binary);
    EXPECT_TRUE(stream.good()) << path;
    std::ostringstream text;
    text << stream.rdbuf();
    files.push_back({path, unitsOfPage({path, text.str()})});
  }
  return files;
}

size_t allowedIn(const std::string& path, const Phrase& phrase) {
  for (const EnglishException& exception : englishExceptions)
    if (exception.path == path && exception.words == phrase.words)
      return exception.findings;
  return 0;
}

bool isReadYet(const std::string& path) {
  return std::none_of(std::begin(notReadYet), std::end(notReadYet),
                      [&](std::string_view prefix) { return path.starts_with(prefix); });
}

std::string folderOf(const std::string& path) { return path.substr(0, path.find('/')); }

TEST(English, PhrasesAreFound) {
  const SourceFile file{"a.cc", "/// Of the rows, as\n"
                                "/// many as are told. What it is.\n"
                                "int x; ///< is no longer y, is no z; there is no w\n"
                                "f(\"the site lies here\", \"site\"); // the site\n"};
  const std::vector<ProseUnit> units = unitsOfSource(file);
  std::map<std::string_view, std::vector<size_t>> found;
  for (const Phrase& phrase : phrases)
    if (std::vector<size_t> lines = linesWith(phrase, units); !lines.empty())
      found[phrase.words] = lines;
  const std::map<std::string_view, std::vector<size_t>> expected = {
      {"^ of", {1}},      {"so|as many", {1}}, {"told|tell|tells|telling", {2}},
      {"^ what", {2}},    {"is|are no", {3}},  {"lie|lies|lying", {4}},
      {"site|sites", {4}}};
  EXPECT_EQ(found, expected);
  const auto text = unitsOfPage({"a.md", "It is refused unless a is b, but where\nc. `told`\n"});
  EXPECT_EQ(linesWith({"unless ... but where", page, ""}, text), std::vector<size_t>{1});
  EXPECT_EQ(linesWith({"told", page, ""}, text), std::vector<size_t>{});
}

TEST(English, CommentsMessagesAndPagesArePlain) {
  std::map<std::string, std::map<std::string_view, size_t>> counts;
  for (const EnglishFile& file : englishFiles())
    for (const Phrase& phrase : phrases) {
      const std::vector<size_t> lines = linesWith(phrase, file.units);
      counts[folderOf(file.path)][phrase.words] += lines.size();
      if (!isReadYet(file.path) || lines.size() == allowedIn(file.path, phrase))
        continue;
      std::string where;
      for (size_t line : lines)
        where += " " + file.path + ":" + std::to_string(line);
      ADD_FAILURE() << "\"" << phrase.words << "\" at" << where << "\nwrite: " << phrase.instead;
    }
  for (const auto& [folder, found] : counts)
    for (const auto& [words, number] : found)
      if (number != 0)
        std::cout << folder << ": " << number << " of \"" << words << "\"\n";
}

} // namespace
} // namespace kvopt
