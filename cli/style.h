// Colors of text on a terminal.
#pragma once

#include "cli/command.h"

#include <cstdio>
#include <string_view>

namespace kvopt {

/// Colors text on stdout when that takes it: `--color always`, or `auto` on a terminal without
/// NO_COLOR.
class Style {
public:
  explicit Style(const CommonOptions& options);
  /// For text on stderr.
  static Style ofErrors(const CommonOptions& options);

  std::string good(std::string_view text) const { return wrap("\x1b[32m", text); }
  std::string bad(std::string_view text) const { return wrap("\x1b[31m", text); }
  std::string verdict(std::string_view text, bool isGood) const {
    return isGood ? good(text) : bad(text);
  }
  std::string faint(std::string_view text) const { return wrap("\x1b[2m", text); }

private:
  Style(const CommonOptions& options, std::FILE* stream);
  std::string wrap(std::string_view code, std::string_view text) const;
  bool colored;
};

/// Text from a file, safe to show on a terminal: control characters become \xNN.
std::string printable(std::string_view text);

} // namespace kvopt
