// Text that is safe to print on a terminal, as a type.
//
//   SafeText line = formatText("{} at '{}'\n", style.bad("MISSED"), node.name());
//
// escapes the node's name, keeps the color that `bad` added, and keeps the line feed of the format.
#pragma once

#include "support/escape.h"

#include <concepts>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace kvopt {

template <class T>
concept TextLike = std::is_convertible_v<const T&, std::string_view>;

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

namespace detail {

/// Value that a format receives for one argument: escaped one-line text; numbers are unchanged.
template <class T> auto safeArgument(const T& argument) {
  if constexpr (std::same_as<T, SafeText>) {
    return std::string_view(argument.str());
  } else if constexpr (TextLike<T>) {
    return escaped(std::string_view(argument));
  } else {
    static_assert(std::is_arithmetic_v<T> && !std::same_as<T, char>,
                  "only text and numbers can be formatted safely");
    return argument;
  }
}

template <class T> using SafeArgument = decltype(safeArgument(std::declval<const T&>()));

template <class... Mapped>
SafeText formatMapped(fmt::string_view format, const Mapped&... arguments) {
  return SafeText::trusted(fmt::vformat(format, fmt::make_format_args(arguments...)));
}

} // namespace detail

/// fmt::format for text that people read. Escapes every string argument to one line unless it is
/// SafeText already. Widths count characters after escaping.
template <class... Args>
SafeText formatText(fmt::format_string<detail::SafeArgument<std::remove_cvref_t<Args>>...> format,
                    const Args&... arguments) {
  return detail::formatMapped(format, detail::safeArgument(arguments)...);
}

} // namespace kvopt
