// Escaping for XML.
#include "cli/xml_text.h"

#include <cstdint>
#include <utility>

namespace kvopt {
namespace {

/// The code point at the front of `text` and how many bytes it has; U+FFFD and 1 for what is none.
std::pair<uint32_t, size_t> decodeUtf8(std::string_view text) {
  constexpr std::pair<uint32_t, size_t> wrong{0xFFFD, 1};
  auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  uint32_t first = byte(0);
  if (first < 0x80)
    return {first, 1};
  size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  constexpr uint32_t leasts[] = {0, 0, 0x80, 0x800, 0x10000};
  if (first < 0xC2 || first > 0xF4 || text.size() < length)
    return wrong;
  uint32_t point = first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80)
      return wrong;
    point = point << 6 | (byte(i) & 0x3F);
  }
  bool isSurrogate = point >= 0xD800 && point < 0xE000;
  return point < leasts[length] || point > 0x10FFFF || isSurrogate ? wrong
                                                                   : std::pair{point, length};
}

bool isXmlCharacter(uint32_t point) {
  return point >= 0x20 ? point != 0xFFFE && point != 0xFFFF
                       : point == '\t' || point == '\n' || point == '\r';
}

} // namespace

std::string xmlText(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    auto [point, length] = decodeUtf8(text);
    std::string_view bytes = text.substr(0, length);
    text.remove_prefix(length);
    if (point == 0xFFFD || !isXmlCharacter(point))
      safe += "\xEF\xBF\xBD";
    else if (point == '&')
      safe += "&amp;";
    else if (point == '<')
      safe += "&lt;";
    else if (point == '>')
      safe += "&gt;";
    else if (point == '"')
      safe += "&quot;";
    else if (point == '\'')
      safe += "&#39;";
    else
      safe += bytes;
  }
  return safe;
}

} // namespace kvopt
