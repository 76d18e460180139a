// UTF-8 as RFC 3629 defines it.
#include "support/utf8.h"

#include <algorithm>

namespace kvopt {
namespace {

uint32_t byteAt(std::string_view text, size_t index) {
  return static_cast<unsigned char>(text[index]);
}

bool isContinuation(uint32_t byte) { return (byte & 0xC0) == 0x80; }

/// Number of bytes of a character whose first byte is `first`; 0 if it cannot start a character.
size_t lengthFrom(uint32_t first) {
  if (first < 0x80)
    return 1;
  if (first < 0xC2 || first > 0xF4)
    return 0;
  return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
}

} // namespace

Utf8Character firstCharacter(std::string_view text) {
  const uint32_t first = byteAt(text, 0);
  const Utf8Character invalid{first, 1, false};
  const size_t length = lengthFrom(first);
  if (length == 1)
    return {first, 1, true};
  if (length == 0 || text.size() < length)
    return invalid;
  uint32_t point = first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (!isContinuation(byteAt(text, i)))
      return invalid;
    point = point << 6 | (byteAt(text, i) & 0x3F);
  }
  constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool isSurrogate = point >= 0xD800 && point < 0xE000;
  if (point < least[length] || point > 0x10FFFF || isSurrogate)
    return invalid;
  return {point, length, true};
}

std::string utf8Of(uint32_t point) {
  auto byte = [](uint32_t value) { return static_cast<char>(static_cast<unsigned char>(value)); };
  auto continuation = [&](unsigned shift) { return byte(0x80 | ((point >> shift) & 0x3F)); };
  if (point < 0x80)
    return {byte(point)};
  if (point < 0x800)
    return {byte(0xC0 | point >> 6), continuation(0)};
  if (point >= 0xD800 && point < 0xE000)
    return "";
  if (point < 0x10000)
    return {byte(0xE0 | point >> 12), continuation(6), continuation(0)};
  if (point > 0x10FFFF)
    return "";
  return {byte(0xF0 | point >> 18), continuation(12), continuation(6), continuation(0)};
}

size_t incompleteSuffix(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const uint32_t byte = byteAt(text, text.size() - back);
    if (!isContinuation(byte))
      return lengthFrom(byte) > back ? back : 0;
  }
  return 0;
}

} // namespace kvopt
