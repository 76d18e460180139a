// Text that is safe to print on a terminal, as a type.
//
//   SafeText line = formatText("{} at '{}'\n", style.bad("MISSED"), node.name());
//
// escapes the node's name, keeps the color that `bad` added, and keeps the line feed of the format.
#pragma once

#include "support/escape.h"
#include "support/format.h"

#include <array>
#include <concepts>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace kvopt {

/// UTF-8 whose only control characters are line feeds, tabs, and those that the program added
/// through `trusted`.
class SafeText {
public:
  SafeText() = default;
  /// Text of one or more lines, escaped by `escapedLines`. A name in it that contains line feeds
  /// still starts new lines: use `formatText` for names.
  template <TextLike T>
  requires(!std::same_as<T, SafeText>) SafeText(const T& lines)
      : text(escapedLines(std::string_view(lines))) {}

  /// Control characters chosen by this program, such as colors.
  static SafeText trusted(std::string text) {
    SafeText result;
    result.text = std::move(text);
    return result;
  }

  const std::string& str() const { return text; }
  bool empty() const { return text.empty(); }

  SafeText& operator+=(const SafeText& other) {
    text += other.text;
    return *this;
  }
  friend SafeText operator+(SafeText left, const SafeText& right) { return left += right; }
  friend bool operator==(const SafeText&, const SafeText&) = default;

private:
  std::string text;
};

/// Like `formattedAs`, but escapes every text to one line unless it is SafeText already.
SafeText formatSafely(std::string_view pattern, std::span<const FormatValue> values);

/// `formatted` for text that people read: escapes every string argument to one line unless it is
/// SafeText already. Widths count characters after escaping.
template <class... Values>
SafeText formatText(FormatPattern<std::type_identity_t<Values>...> pattern,
                    const Values&... values) {
  static_assert((... && (TextLike<Values> || std::same_as<Values, SafeText> ||
                         (std::is_arithmetic_v<Values> && !std::same_as<Values, char>))),
                "only text and numbers can be formatted safely");
  std::array<FormatValue, sizeof...(Values)> erased{detail::formatValue(values)...};
  return formatSafely(pattern.text, erased);
}

} // namespace kvopt
