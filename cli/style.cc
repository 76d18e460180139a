// Style: when to color, and how.
#include "cli/style.h"

#include "ir/format.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace kvopt {

Style::Style(const CommonOptions& options) : Style(options, stdout) {}

Style Style::ofErrors(const CommonOptions& options) { return Style(options, stderr); }

Style::Style(const CommonOptions& options, std::FILE* stream) {
  const char* off = std::getenv("NO_COLOR");
  bool isAuto = options.color == "auto" && ::isatty(::fileno(stream)) == 1 && !(off && *off);
  colored = options.color == "always" || isAuto;
}

std::string Style::wrap(std::string_view code, std::string_view text) const {
  return colored ? fmt::format("{}{}\x1b[0m", code, text) : std::string(text);
}

std::string printable(std::string_view text) {
  std::string safe;
  for (char byte : text) {
    auto code = static_cast<unsigned char>(byte);
    if (code < 0x20 || code == 0x7f)
      safe += fmt::format("\\x{:02x}", code);
    else
      safe += byte;
  }
  return safe;
}

} // namespace kvopt
