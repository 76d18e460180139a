// Colors of text on a terminal.
#pragma once

#include "cli/support/command.h"
#include "support/safe_text.h"

#include <cstdio>

namespace kvopt::cli {

/// Colors text on stdout if it supports colors: `--color always`, or `auto` on a terminal without
/// NO_COLOR.
class Style {
public:
  explicit Style(const CommonOptions& options);
  /// The style of text on stderr.
  static Style ofErrors(const CommonOptions& options);

  SafeText good(const SafeText& text) const { return wrap("\x1b[32m", text); }
  SafeText bad(const SafeText& text) const { return wrap("\x1b[31m", text); }
  SafeText verdict(const SafeText& text, bool isGood) const {
    return isGood ? good(text) : bad(text);
  }
  SafeText faint(const SafeText& text) const { return wrap("\x1b[2m", text); }

private:
  Style(const CommonOptions& options, std::FILE* stream);
  SafeText wrap(const char* code, const SafeText& text) const;
  bool colored;
};

} // namespace kvopt::cli
