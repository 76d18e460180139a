// Width from COLUMNS or from the terminal's ioctl.
#include "cli/support/terminal.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <cstdlib>
#include <sys/ioctl.h>
#include <unistd.h>

namespace kvopt::cli {

namespace {

/// The value of COLUMNS; nullopt if it is not a number above 0.
std::optional<size_t> columnsOfEnvironment() {
  const char* text = std::getenv("COLUMNS");
  unsigned columns = 0;
  if (!text || llvm::StringRef(text).getAsInteger(10, columns) || columns == 0)
    return std::nullopt;
  return columns;
}

} // namespace

std::optional<size_t> terminalColumns(std::FILE* stream) {
  const int descriptor = ::fileno(stream);
  if (::isatty(descriptor) != 1)
    return std::nullopt;
  if (const auto columns = columnsOfEnvironment())
    return columns;
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return std::nullopt;
  return size.ws_col;
}

size_t textColumns() {
  constexpr size_t usual = 80, least = 40, most = 100;
  auto columns = columnsOfEnvironment();
  if (!columns)
    columns = terminalColumns(stdout);
  return std::clamp(columns.value_or(usual), least, most);
}

} // namespace kvopt::cli
