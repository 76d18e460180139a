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

/// Number of bytes of the escape sequence at the start of `text`; 0 if there is none.
size_t colorBytes(std::string_view text) {
  if (text.substr(0, 2) != "\x1b[")
    return 0;
  const size_t end = text.find('m');
  return end == std::string_view::npos ? 0 : end + 1;
}

/// Column at which the continuations of a line start.
size_t hangingColumn(std::string_view line) {
  constexpr size_t widestLabel = 24;
  const size_t first = std::min(line.find_first_not_of(' '), line.size());
  size_t hanging = first + 2;
  for (size_t i = first; i + 2 < std::min(line.size(), widestLabel); ++i)
    if (line[i] == ' ' && line[i + 1] == ' ' && line[i + 2] != ' ')
      hanging = columnsOf(line.substr(0, i + 2));
  return hanging;
}

/// Number of bytes of `line` before the space at which it is broken, so that they fit in `columns`
/// columns. All of it if it fits, or if it has no space after `least` bytes.
size_t brokenAt(std::string_view line, size_t columns, size_t least) {
  size_t column = 0;
  size_t space = line.size();
  size_t comma = line.size();
  for (size_t i = 0; i < line.size();) {
    if (const size_t color = colorBytes(line.substr(i))) {
      i += color;
      continue;
    }
    if (line[i] == ' ' && i > least && (column <= columns || space == line.size())) {
      space = i;
      if (line[i - 1] == ',' && 2 * column > columns)
        comma = i;
    }
    column += (static_cast<unsigned char>(line[i]) & 0xc0) != 0x80 ? 1 : 0;
    ++i;
  }
  if (column <= columns)
    return line.size();
  return comma != line.size() ? comma : space;
}

} // namespace

std::string wrappedLines(std::string_view text, size_t columns) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    const size_t hanging = std::min(hangingColumn(line), columns / 2);
    size_t least = std::min(line.find_first_not_of(' '), line.size());
    for (size_t at = brokenAt(line, columns, least); at != line.size();
         at = brokenAt(line, columns, least)) {
      out += line.substr(0, at) + "\n";
      const size_t next = std::min(line.find_first_not_of(' ', at), line.size());
      line = std::string(hanging, ' ') + line.substr(next);
      least = hanging;
    }
    out += line;
    if (end < text.size())
      out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
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
