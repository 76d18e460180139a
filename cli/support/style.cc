// Escape sequences for colors.
#include "cli/support/style.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace kvopt::cli {

Style::Style(const CommonOptions& options) : Style(options, stdout) {}

Style Style::ofErrors(const CommonOptions& options) { return Style(options, stderr); }

Style::Style(const CommonOptions& options, std::FILE* stream) {
  const char* off = std::getenv("NO_COLOR");
  bool isAuto =
      options.color == ColorChoice::Auto && ::isatty(::fileno(stream)) == 1 && !(off && *off);
  colored = options.color == ColorChoice::Always || isAuto;
}

SafeText Style::wrap(const char* code, const SafeText& text) const {
  return colored ? SafeText::trusted(code + text.str() + "\x1b[0m") : text;
}

} // namespace kvopt::cli
