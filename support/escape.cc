// Characters that are escaped, and their escapes.
#include "support/escape.h"

#include "support/format.h"
#include "support/utf8.h"

#include <algorithm>
#include <cstdint>

namespace kvopt {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

/// Sorted ranges from U+0080 on; `isUnsafe` decides for ASCII.
constexpr Range unsafeRanges[] = {
    {0x0080, 0x009F},   // C1 controls
    {0x00AD, 0x00AD},   // soft hyphen
    {0x034F, 0x034F},   // combining grapheme joiner
    {0x061C, 0x061C},   // Arabic letter mark
    {0x115F, 0x1160},   // Hangul fillers
    {0x17B4, 0x17B5},   // Khmer inherent vowels
    {0x180B, 0x180F},   // Mongolian variation selectors and vowel separator
    {0x200B, 0x200F},   // zero-width characters, directional marks
    {0x2028, 0x202E},   // line and paragraph separator, embeddings and overrides
    {0x2060, 0x206F},   // invisible operators, isolates, deprecated format characters
    {0x3164, 0x3164},   // Hangul filler
    {0xFDD0, 0xFDEF},   // noncharacters
    {0xFE00, 0xFE0F},   // variation selectors
    {0xFEFF, 0xFEFF},   // byte order mark
    {0xFFA0, 0xFFA0},   // half-width Hangul filler
    {0xFFF0, 0xFFFB},   // reserved, interlinear annotations
    {0x1BCA0, 0x1BCA3}, // shorthand format controls
    {0x1D173, 0x1D17A}, // musical format controls
    {0xE0000, 0xE0FFF}, // tags, more variation selectors
};

bool isUnsafe(uint32_t point) {
  if (point < 0x80)
    return point < 0x20 || point == 0x7F;
  if ((point & 0xFFFE) == 0xFFFE)
    return true; // the last two code points of each plane are noncharacters
  const Range* range = std::upper_bound(
      std::begin(unsafeRanges), std::end(unsafeRanges), point,
      [](uint32_t value, const Range& candidate) { return value < candidate.first; });
  return range != std::begin(unsafeRanges) && point <= std::prev(range)->last;
}

bool isHexDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/// Whether text that begins with a backslash reads as an escape.
bool startsEscape(std::string_view text) {
  if (text.starts_with("\\u{"))
    return true;
  return text.size() >= 4 && text[1] == 'x' && isHexDigit(text[2]) && isHexDigit(text[3]);
}

void appendEscape(std::string& out, const Utf8Character& character) {
  if (character.isValid && character.point >= 0x80)
    out += formatted("\\u{{{:x}}}", character.point);
  else
    out += formatted("\\x{:02x}", character.point);
}

bool isPlain(char byte) { return byte >= 0x20 && byte < 0x7F; }

template <class Escape> std::string escapeWith(std::string_view text, const Escape& escape) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character character = firstCharacter(text);
    if (!escape(out, text, character))
      out += text.substr(0, character.length);
    text.remove_prefix(character.length);
  }
  return out;
}

} // namespace

std::string escaped(std::string_view text) {
  return escapeWith(text,
                    [](std::string& out, std::string_view rest, const Utf8Character& character) {
                      const bool escapes = !character.isValid || isUnsafe(character.point) ||
                                           (character.point == '\\' && startsEscape(rest));
                      if (escapes)
                        appendEscape(out, character);
                      return escapes;
                    });
}

std::string escapedLines(std::string_view text) {
  return escapeWith(text, [](std::string& out, std::string_view, const Utf8Character& character) {
    const bool isKept = character.point == '\n' || character.point == '\t';
    const bool escapes = !isKept && (!character.isValid || isUnsafe(character.point));
    if (escapes)
      appendEscape(out, character);
    return escapes;
  });
}

std::string escapedJson(std::string_view json) {
  return escapeWith(json, [](std::string& out, std::string_view, const Utf8Character& character) {
    // Between strings, line feeds are part of the layout; inside strings they are already escaped.
    if (!character.isValid || character.point < 0x20 || !isUnsafe(character.point))
      return false;
    if (character.point < 0x10000) {
      out += formatted("\\u{:04x}", character.point);
    } else {
      const uint32_t rest = character.point - 0x10000;
      out += formatted("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
    return true;
  });
}

bool hasUnsafeCharacters(std::string_view text) {
  while (!text.empty()) {
    if (isPlain(text.front()) || text.front() == '\n' || text.front() == '\t') {
      text.remove_prefix(1);
      continue;
    }
    const Utf8Character character = firstCharacter(text);
    if (!character.isValid || isUnsafe(character.point))
      return true;
    text.remove_prefix(character.length);
  }
  return false;
}

std::string LineEscaper::add(std::string_view piece) {
  pending += piece;
  const std::string_view all = pending;
  const size_t complete = all.size() - incompleteSuffix(all);
  std::string text = escapedLines(all.substr(0, complete));
  pending.erase(0, complete);
  return text;
}

std::string LineEscaper::finish() {
  std::string text = escapedLines(pending);
  pending.clear();
  return text;
}

} // namespace kvopt
