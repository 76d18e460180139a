// RowKind: what rows of caches may hold, and the words for it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvopt::driver {

/// What rows of caches hold.
enum class RowKind : uint8_t { Same, Float16, BFloat16, Int8, Int4 };

/// The values of `--rows`, one for each RowKind, in its order.
inline constexpr const char* rowWords[] = {"same", "float16", "bfloat16", "int8", "int4"};

inline constexpr size_t rowKindCount = std::size(rowWords);

inline constexpr auto allRowKinds = [] {
  std::array<RowKind, rowKindCount> all{};
  for (size_t i = 0; i < rowKindCount; ++i)
    all[i] = static_cast<RowKind>(i);
  return all;
}();

/// The words with '|' between them, as in a table of options.
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
  return text; // the last one is zero
}();

} // namespace kvopt::driver
