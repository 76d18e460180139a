// Wrapping of paragraphs, and cutting of lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvopt::cli {

/// Number of columns of UTF-8 text: one for each code point.
size_t columnsOf(std::string_view text);

/// The words of `text` in lines of at most `columns` columns. The first line starts at the column
/// `start`; the others start with `indent` spaces. A word that is longer than a line has a line of
/// its own. There is no line feed at the end.
std::string wrapped(std::string_view text, size_t columns, size_t indent, size_t start);

/// `text` unchanged if it fits in the columns after `start`, otherwise wrapped.
std::string wrappedIfLong(std::string_view text, size_t columns, size_t start);

/// Every line of `text` that is longer than `columns` columns, broken at spaces, after a comma
/// where that leaves most of the line. Continuations start below the line's last column of text
/// within its first 24 columns, or two columns further than the line. Colors (escape sequences that
/// end with 'm') have no width.
std::string wrappedLines(std::string_view text, size_t columns);

/// The lines of a table, cut to `columns` columns: a line that is cut ends with an ellipsis. The
/// text must not contain escape sequences.
std::string cutLines(std::string_view table, size_t columns);

} // namespace kvopt::cli
