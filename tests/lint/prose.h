// The prose of a source file or page: comments, string literals and paragraphs, word by word.
#pragma once

#include "tests/lint/source_files.h"

#include <cctype>

namespace kvopt {

/// Kinds of prose; a set of them is their bitwise or.
enum Prose : unsigned { comment = 1, message = 2, page = 4, anyProse = 7 };

struct ProseWord {
  std::string text; ///< in lower case
  size_t line;
  bool startsSentence;
  bool endsSentence;
};

/// A comment, a string literal or a paragraph.
struct ProseUnit {
  Prose kind;
  std::vector<ProseWord> words;

  void add(std::string_view text, size_t line) {
    size_t at = 0;
    const auto isWord = [](char byte) {
      return std::isalnum(static_cast<unsigned char>(byte)) != 0 || byte == '\'' || byte == '_' ||
             byte == '-';
    };
    while (at < text.size()) {
      if (!isWord(text[at])) {
        if (!words.empty() && std::string_view(".?!:;").find(text[at]) != std::string_view::npos)
          words.back().endsSentence = true;
        ++at;
        continue;
      }
      const size_t start = at;
      while (at < text.size() && isWord(text[at]))
        ++at;
      const bool isUpper = std::isupper(static_cast<unsigned char>(text[start])) != 0;
      const bool starts = words.empty() || (words.back().endsSentence && isUpper);
      std::string word(text.substr(start, at - start));
      std::transform(word.begin(), word.end(), word.begin(),
                     [](unsigned char byte) { return std::tolower(byte); });
      words.push_back({std::move(word), line, starts, false});
    }
  }
};

/// The comments and string literals of a C++ file; adjacent lines of comments are one unit.
inline std::vector<ProseUnit> unitsOfSource(const SourceFile& file) {
  std::vector<ProseUnit> units;
  size_t number = 0;
  bool continues = false; // the line before was nothing but a comment
  for (const std::string& line : file.lines()) {
    ++number;
    size_t at = line.find_first_not_of(' ');
    const bool isComment = at != line.npos && line.compare(at, 2, "//") == 0;
    if (line.starts_with("#include"))
      at = line.size();
    for (; at < line.size(); ++at) {
      if (line.compare(at, 2, "//") == 0) {
        const bool isDoc = line.compare(at, 3, "///") == 0;
        if (!continues || !isComment)
          units.push_back({comment, {}});
        units.back().add(std::string_view(line).substr(at + (isDoc ? 3 : 2)), number);
        break;
      }
      if (line[at] == '\'' && at + 2 < line.size())
        at += line[at + 1] == '\\' ? 3 : (line[at + 2] == '\'' ? 2 : 0);
      if (line[at] != '"')
        continue;
      const size_t start = ++at;
      while (at < line.size() && line[at] != '"')
        at += line[at] == '\\' ? 2 : 1;
      units.push_back({message, {}});
      units.back().add(std::string_view(line).substr(start, at - start), number);
    }
    // A comment at the end of a line may continue on lines of its own.
    continues = isComment || line.find(" ///< ") != line.npos;
  }
  return units;
}

/// The paragraphs of a page, without code.
inline std::vector<ProseUnit> unitsOfPage(const SourceFile& file) {
  std::vector<ProseUnit> units;
  size_t number = 0;
  bool isCode = false, isNew = true;
  for (std::string line : file.lines()) {
    ++number;
    if (line.find("```") != line.npos)
      isCode = !isCode;
    isNew |= isCode || line.find_first_not_of(' ') == line.npos;
    if (isCode || line.find_first_not_of(' ') == line.npos || line.starts_with("    "))
      continue;
    for (size_t open; (open = line.find('`')) != line.npos;) {
      const size_t close = line.find('`', open + 1);
      line.replace(open, close == line.npos ? close : close - open + 1, "code");
    }
    if (isNew)
      units.push_back({page, {}});
    isNew = false;
    units.back().add(line, number);
  }
  return units;
}

} // namespace kvopt
