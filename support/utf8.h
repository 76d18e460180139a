// UTF-8, decoded and encoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvopt {

/// One character of a text, or one byte that is not part of any.
struct Utf8Character {
  uint32_t point = 0; ///< The code point; for an invalid byte its value.
  size_t length = 1;  ///< Bytes.
  bool isValid = false;
};

/// The character at the front of a text that is not empty. Surrogates, overlong forms, truncated
/// sequences and values above U+10FFFF are invalid bytes.
Utf8Character firstCharacter(std::string_view text);

/// A code point in UTF-8; empty for surrogates and values above U+10FFFF.
std::string utf8Of(uint32_t point);

/// Number of trailing bytes that may be the start of a character: 0 to 3.
size_t incompleteSuffix(std::string_view text);

} // namespace kvopt
