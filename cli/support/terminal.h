// Width of the terminal.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>

namespace kvopt::cli {

/// Columns of the terminal to which the stream writes: the variable COLUMNS, or the terminal's own
/// width. nullopt for a file or a pipe.
std::optional<size_t> terminalColumns(std::FILE* stream);

/// Columns for text that is wrapped even in a file: the variable COLUMNS, or the width of stdout's
/// terminal, or 80; limited to 40 to 100.
size_t textColumns();

} // namespace kvopt::cli
