// Escaping of text whose origin is not trusted, before it reaches a terminal, a log, or a page.
//
// Names, operators, attributes and documentation come from model files, and so may paths. Some of
// their characters make a terminal do things (ESC, BEL, U+009B), show text in another order than it
// is stored (U+202E), or are invisible (U+200B). These are written as `\x1b`, where one byte is
// meant, and as `\u{202e}`, where a character beyond ASCII is meant:
//
//   * C0 and C1 controls, and U+007F;
//   * line and paragraph separators (U+2028, U+2029);
//   * bidirectional controls, and every other character that Unicode lists as
//     Default_Ignorable_Code_Point: zero-width characters, soft hyphens, tags, variation selectors;
//   * interlinear annotations, and code points that are not characters (U+FFFE, U+FDD0, ...);
//   * bytes that are not UTF-8, including surrogates and overlong forms, one by one.
//
// All other UTF-8 stays as it is.
#pragma once

#include <string>
#include <string_view>

namespace kvopt {

/// Text on one line. The escaping is reversible: a backslash stays as it is (`C:\models`) unless it
/// would read as the start of an escape, where it becomes `\x5c`.
std::string escaped(std::string_view text);

/// Text of several lines: keeps line feeds and tabs, and every backslash. Escaped text stays as it
/// is.
std::string escapedLines(std::string_view text);

/// JSON with the same characters as `\uNNNN`, which leaves its meaning unchanged. `json` must be
/// valid JSON in UTF-8.
std::string escapedJson(std::string_view json);

/// Whether `escaped` changes more than backslashes and line breaks.
bool hasUnsafeCharacters(std::string_view text);

/// Escapes lines that arrive in pieces, such as generated text: a character may be split between
/// two pieces.
class LineEscaper {
public:
  /// The escaped text of all characters that are complete.
  std::string add(std::string_view piece);
  /// What is left when no piece follows.
  std::string finish();

private:
  std::string pending;
};

} // namespace kvopt
