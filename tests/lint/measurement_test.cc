// No comment of product, benchmarks or examples states a measurement: those are in bench/results,
// with machine and date.
#include "tests/lint/source_files.h"

#include <regex>

namespace kvopt {
namespace {

bool isChecked(std::string_view path) {
  return isSourcePath(path) || path.ends_with("CMakeLists.txt");
}

std::vector<SourceFile> checkedFiles() {
  std::vector<SourceFile> all;
  for (const char* folder :
       {"support", "ir", "passes", "runtime", "driver", "cli", "bench", "examples"}) {
    std::vector<SourceFile> files = readFiles(folder, isChecked);
    std::move(files.begin(), files.end(), std::back_inserter(all));
  }
  EXPECT_GT(all.size(), 100u) << "the source folder is not what this test thinks it is";
  return all;
}

/// What follows the marker of a comment in `line`; empty without one. A marker within a string
/// literal starts no comment.
std::string_view commentOf(std::string_view line, std::string_view marker) {
  bool isQuoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\')
      ++i;
    else if (line[i] == '"')
      isQuoted = !isQuoted;
    else if (!isQuoted && line.substr(i).starts_with(marker))
      return line.substr(i + marker.size());
  }
  return {};
}

/// What a measurement looks like: a rate, a time, a percentage, or a ratio of times. Sizes
/// (`64 KiB`) and ratios of sizes and counts (`twice as many rows`) are none.
constexpr const char* measurementPatterns[] = {
    // 40 GB/s, 160 GF/s, 12.5 tokens a second
    R"(\b\d[\d.,]* ?([KMGT]i?B|[MGT]F|[MGT]FLOPS?|tokens?)(/s\b| per second| a second))",
    // 1.4 us, 30 microseconds, 88 cycles. Not "2 s": also a variable's multiple.
    R"(\b\d[\d.,]* ?(ns|us|µs|ms|(nano|micro|milli)?seconds?|minutes?|cycles?)\b)",
    // 8 %, 12.5%, 7 percent. Not a remainder, as in "5 % 3".
    R"(\b\d[\d.,]* ?(%(?! ?\d)(?!\w)|percent\b))",
    // 1.16 times as fast, eight times slower, 30x faster
    R"(\b(\d[\d.,]*|two|three|four|five|six|seven|eight|nine|ten|several) ?(x|times) )"
    R"((as (fast|slow|quick)|faster|slower|quicker|cheaper|the (time|speed)\b))",
    R"(\b(twice|half) (as (fast|slow|quick)|the (time|speed)\b))",
    // a third of the time, a tenth slower
    R"(\b(an?|one|two|three) (half|halves|third|quarter|fifth|sixth|eighth|tenth)s? )"
    R"((of (the|its|that) (time|speed|bandwidth)\b|less time|more time|faster|slower))",
    R"(\b(halves|doubles|triples) (the|its) (time|speed)\b)",
};

/// The part of a comment that states a measurement; empty without one.
std::string measurementIn(const std::string& comment) {
  static const std::vector<std::regex> patterns = [] {
    std::vector<std::regex> all;
    for (const char* pattern : measurementPatterns)
      all.emplace_back(pattern, std::regex::icase | std::regex::optimize);
    return all;
  }();
  std::smatch found;
  for (const std::regex& pattern : patterns)
    if (std::regex_search(comment, found, pattern))
      return found.str();
  return {};
}

/// Runs of comment lines, with the line that each starts at: a sentence may go over several lines.
struct Comment {
  size_t line = 0;
  std::string text;
};
std::vector<Comment> commentsOf(const SourceFile& file) {
  const std::string_view marker = isSourcePath(file.path) ? "//" : "#";
  std::vector<Comment> comments;
  const std::vector<std::string> lines = file.lines();
  size_t last = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view comment = commentOf(lines[i], marker);
    if (comment.empty())
      continue;
    if (comments.empty() || last + 1 != i)
      comments.push_back({i + 1, {}});
    last = i;
    std::string_view text = comment;
    text.remove_prefix(std::min(text.find_first_not_of("/!< "), text.size()));
    comments.back().text +=
        std::string(comments.back().text.empty() ? "" : " ") + std::string(text);
  }
  return comments;
}

TEST(Measurement, IsRecognized) {
  for (const char* text :
       {"memory gives 40 GB/s to a thread", "reads 12.5 tokens a second",
        "finding a page takes 1.4 us", "spins for 30 microseconds", "S2 takes 88 cycles a key",
        "8 % less", "12.5% of the time", "7 percent", "eight times faster than small ones",
        "1.16 times as fast", "several times slower", "30x faster", "takes a third of the time",
        "rows are read a third slower", "doubles the time to compile", "twice as fast",
        "a tenth of the time of reading them", "is an eighth of the time"})
    EXPECT_NE(measurementIn(text), "") << text;
}

TEST(Measurement, OtherNumbersAreNone) {
  for (const char* text :
       {"a tile of 128 KiB", "twice as many rows", "halves to even", "a quarter of its rows",
        "prints {} %d %s", "the key i % 16", "5 % 3", "2^40 times less likely",
        "at most 2 GiB less a page", "[B,2 s,D]", "less than twice as much, a quarter more at most",
        "the larger half", "com.microsoft::Attention", "1e-4 of the largest value",
        "three times the room", "four times", "a tenth of the values is below it",
        "double, more axes", "compiles much faster"})
    EXPECT_EQ(measurementIn(text), "") << text;
}

TEST(Measurement, CommentsAreFound) {
  const SourceFile file{"a.cc", "int a; // one\n"
                                "/// reads at\n"
                                "/// 40 GB/s\n"
                                "\n"
                                "const char* b = \"http://\"; ///< two\n"};
  const std::vector<Comment> comments = commentsOf(file);
  ASSERT_EQ(comments.size(), 2u);
  EXPECT_EQ(comments[0].text, "one reads at 40 GB/s");
  EXPECT_EQ(comments[1].line, 5u);
  EXPECT_EQ(comments[1].text, "two");
  EXPECT_EQ(commentsOf({"CMakeLists.txt", "set(a b) # 8 % less\n"}).size(), 1u);
}

TEST(Measurement, IsInNoComment) {
  for (const SourceFile& file : checkedFiles())
    for (const Comment& comment : commentsOf(file)) {
      const std::string found = measurementIn(comment.text);
      EXPECT_EQ(found, "") << file.path << ":" << comment.line << " states a measurement, which "
                           << "belongs to bench/results: " << comment.text;
    }
}

} // namespace
} // namespace kvopt
