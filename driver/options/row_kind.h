// RowKind: the contents of cache rows, and the words of `--rows`.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvopt::driver {

/// The contents of cache rows: the model's own type, a narrower type, or codes.
enum class RowKind : uint8_t { Same, Float16, BFloat16, Int8, Int4 };

/// The values of `--rows`, in the order of RowKind.
inline constexpr const char* rowWords[] = {"same", "float16", "bfloat16", "int8", "int4"};

inline constexpr size_t rowKindCount = std::size(rowWords);

inline constexpr auto allRowKinds = [] {
  std::array<RowKind, rowKindCount> all{};
  for (size_t i = 0; i < rowKindCount; ++i)
    all[i] = static_cast<RowKind>(i);
  return all;
}();

/// The words separated by '|', as in the table of options.
inline constexpr auto joinedRowWords = [] {
  constexpr size_t length = [] {
    size_t sum = 0;
    for (std::string_view word : rowWords)
      sum += word.size() + 1;
    return sum;
  }();
  std::array<char, length> text{};
  size_t at = 0;
  for (std::string_view word : rowWords) {
    if (at != 0)
      text[at++] = '|';
    for (char letter : word)
      text[at++] = letter;
  }
  return text; // the last character is zero
}();

} // namespace kvopt::driver
