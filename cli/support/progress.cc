// Carriage return, text, erase to the end of the line.
#include "cli/support/progress.h"

#include "cli/support/style.h"
#include "support/format.h"

#include <cstdio>
#include <unistd.h>

namespace kvopt::cli {

Progress::Progress(const CommonOptions& options)
    : enabled(!options.quiet && ::isatty(::fileno(stderr)) == 1) {}

void Progress::show(const std::string& text) {
  constexpr size_t columns = 79;
  if (!enabled)
    return;
  printErr(SafeText::trusted(fmt::format("\r{:.{}}\x1b[K", escaped(text), columns)));
  std::fflush(stderr);
  shown = true;
}

void Progress::clear() {
  if (!shown)
    return;
  printErr(SafeText::trusted("\r\x1b[K"));
  std::fflush(stderr);
  shown = false;
}

} // namespace kvopt::cli
