// Decoding and encoding of UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvopt {

/// One character of a text, or one byte that does not belong to a character.
struct Utf8Character {
  uint32_t point = 0; ///< Code point; for an invalid byte, its value.
  size_t length = 1;  ///< Length in bytes.
  bool isValid = false;
};

/// First character of a text that is not empty. Surrogates, overlong forms, truncated sequences and
/// values above U+10FFFF are invalid bytes.
Utf8Character firstCharacter(std::string_view text);

/// A code point in UTF-8; empty for surrogates and values above U+10FFFF.
std::string utf8Of(uint32_t point);

/// Number of trailing bytes, 0 to 3, that may be the start of an incomplete character.
size_t incompleteSuffix(std::string_view text);

} // namespace kvopt
