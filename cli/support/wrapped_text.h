// Paragraphs that are broken into lines of a width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvopt::cli {

/// Columns that UTF-8 text takes, one for each code point.
size_t columnsOf(std::string_view text);

/// The words of `text` in lines of at most `columns` columns, each of which starts with `indent`
/// spaces, except that the first line starts at the column `start`. A word that is longer than a
/// line is alone on its line. No line feed at the end.
std::string wrapped(std::string_view text, size_t columns, size_t indent, size_t start);

/// `text` as it is where it fits in the columns after `start`, else wrapped.
std::string wrappedIfLong(std::string_view text, size_t columns, size_t start);

/// The lines of a table, without what is beyond `columns` columns: a line that is cut ends with an
/// ellipsis. The text has no escape sequences.
std::string cutLines(std::string_view table, size_t columns);

} // namespace kvopt::cli
