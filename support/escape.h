// Escaping of untrusted text before it reaches a terminal, a log, or a page.
//
// Names, operators, attributes, documentation, and paths come from model files. Some of their
// characters control the terminal (ESC, BEL, U+009B), display text in another order than it is
// stored (U+202E), or are invisible (U+200B). A byte is written as `\x1b`, a character beyond ASCII
// as `\u{202e}`. The escaped characters are:
//
//   * C0 and C1 controls, and U+007F;
//   * line and paragraph separators (U+2028, U+2029);
//   * bidirectional controls, and every other character that Unicode lists as
//     Default_Ignorable_Code_Point: zero-width characters, soft hyphens, tags, variation selectors;
// * interlinear annotations and noncharacters (U+FFFE, U+FDD0, ...);
// * bytes that are not UTF-8, including surrogates and overlong forms, one by one.
//
// All other UTF-8 is unchanged.
#pragma once

#include <string>
#include <string_view>

namespace kvopt {

/// Text on one line. The escaping is reversible: a backslash is unchanged (`C:\models`) unless it
/// would read as the start of an escape; then it becomes `\x5c`.
std::string escaped(std::string_view text);

/// Text of several lines: line feeds, tabs, and all backslashes are unchanged. Escaping twice gives
/// the same text.
std::string escapedLines(std::string_view text);

/// JSON with the same characters as `\uNNNN`, which leaves its meaning unchanged. `json` must be
/// valid JSON in UTF-8.
std::string escapedJson(std::string_view json);

/// Whether `escaped` changes more than backslashes and line breaks.
bool hasUnsafeCharacters(std::string_view text);

/// Escapes text that arrives in pieces, such as generated text. A character may be split between
/// two pieces.
class LineEscaper {
public:
  /// Escaped text of all characters that are complete.
  std::string add(std::string_view piece);
  /// Escaped bytes of an incomplete character at the end of the text.
  std::string finish();

private:
  std::string pending;
};

} // namespace kvopt
