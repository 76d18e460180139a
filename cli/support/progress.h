// One line on stderr that says how far a command is.
#pragma once

#include "cli/support/command.h"

namespace kvopt::cli {

/// Shows and replaces a line, on a terminal only and not with `--quiet`; removes it at the end.
class Progress {
public:
  explicit Progress(const CommonOptions& options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  /// Cut to the terminal's usual width. Control characters are escaped.
  void show(const std::string& text);
  void clear();

private:
  bool enabled;
  bool shown = false;
};

} // namespace kvopt::cli
