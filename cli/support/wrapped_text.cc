// Greedy: a line takes words as long as they fit.
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

} // namespace kvopt::cli
