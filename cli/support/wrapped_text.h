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

} // namespace kvopt::cli
