// How wide a terminal is.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>

namespace kvopt::cli {

/// Columns of the terminal that the stream writes to: the variable COLUMNS, or what the terminal
/// says. Empty for a file or a pipe.
std::optional<size_t> terminalColumns(std::FILE* stream);

/// Columns of a text that is wrapped even in a file: the variable COLUMNS, or those of the terminal
/// of stdout, or 80; from 40 to 100.
size_t textColumns();

} // namespace kvopt::cli
