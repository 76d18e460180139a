// Greedy wrapping: a line takes words as long as they fit.
#include "cli/support/wrapped_text.h"

#include <algorithm>

namespace kvopt::cli {

size_t columnsOf(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  }));
}

std::string wrapped(std::string_view text, size_t columns, size_t indent, size_t start) {
  std::string out;
  size_t column = start;
  bool isFirst = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.empty())
      continue;
    if (!isFirst && column + 1 + columnsOf(word) > columns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
      isFirst = true;
    }
    if (!isFirst)
      out += ' ';
    out += word;
    column += columnsOf(word) + (isFirst ? 0 : 1);
    isFirst = false;
  }
  return out;
}

std::string wrappedIfLong(std::string_view text, size_t columns, size_t start) {
  return start + columnsOf(text) <= columns ? std::string(text)
                                            : wrapped(text, columns, start, start);
}

namespace {

/// The first `columns` code points.
std::string_view firstColumns(std::string_view text, size_t columns) {
  size_t end = 0;
  for (size_t column = 0; end < text.size(); ++end) {
    const bool isContinued = (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80;
    if (!isContinued && column++ == columns)
      break;
  }
  return text.substr(0, end);
}

} // namespace

std::string cutLines(std::string_view table, size_t columns) {
  std::string out;
  while (!table.empty()) {
    const size_t end = std::min(table.find('\n'), table.size());
    const std::string_view line = table.substr(0, end);
    if (columnsOf(line) <= columns)
      out += line;
    else
      out += std::string(firstColumns(line, columns - 1)) + "…";
    if (end < table.size())
      out += '\n';
    table.remove_prefix(std::min(end + 1, table.size()));
  }
  return out;
}

} // namespace kvopt::cli
