// Text from a pattern and values. The patterns are those of fmt, which only format.cc sees: its
// headers, and its code for the types of each call, would be compiled with nearly every file.
//
//   formatted("{} of {} rows, {:.1f} %", count, all, percent)
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace kvopt {

template <class T>
concept TextLike = std::is_convertible_v<const T&, std::string_view>;

/// A value for a pattern, without its type. It refers to text and objects, which must outlive it.
struct FormatValue {
  enum class Kind : uint8_t {
    Bool,
    Char,
    Signed,
    Unsigned,
    Float,
    Double,
    Text,
    SafeText, ///< Text that `formatText` does not escape.
    Pointer,
    Object, ///< Something that has a function `str()`.
  };
  struct Characters {
    const char* data;
    size_t size;
  };
  struct Object {
    const void* address;
    std::string (*str)(const void*);
  };

  Kind kind = Kind::Bool;
  /// Empty: the value is found by its position.
  std::string_view name;
  union {
    bool boolean = false;
    char character;
    int64_t signedInteger;
    uint64_t unsignedInteger;
    float real;
    double wideReal;
    Characters text;
    const void* pointer;
    Object object;
  };
};

/// A value that a pattern names: "{count}".
template <class T> struct NamedValue {
  std::string_view name;
  const T& value;
};
template <class T> NamedValue<T> named(std::string_view name, const T& value) {
  return {name, value};
}

class SafeText;

namespace detail {

template <class T> inline constexpr bool isNamed = false;
template <class T> inline constexpr bool isNamed<NamedValue<T>> = true;

template <class T> consteval FormatValue::Kind formatKind() {
  using Kind = FormatValue::Kind;
  if constexpr (std::same_as<T, bool>)
    return Kind::Bool;
  else if constexpr (std::same_as<T, char>)
    return Kind::Char;
  else if constexpr (std::signed_integral<T>)
    return Kind::Signed;
  else if constexpr (std::unsigned_integral<T>)
    return Kind::Unsigned;
  else if constexpr (std::same_as<T, float>)
    return Kind::Float;
  else if constexpr (std::floating_point<T>)
    return Kind::Double;
  else if constexpr (std::same_as<T, SafeText>)
    return Kind::SafeText;
  else if constexpr (TextLike<T>)
    return Kind::Text;
  else if constexpr (std::is_pointer_v<T>)
    return Kind::Pointer;
  else
    return Kind::Object;
}

template <class T> FormatValue formatValue(const T& value) {
  using Kind = FormatValue::Kind;
  FormatValue result;
  if constexpr (isNamed<T>) {
    result = formatValue(value.value);
    result.name = value.name;
  } else {
    result.kind = formatKind<T>();
    if constexpr (formatKind<T>() == Kind::Bool) {
      result.boolean = value;
    } else if constexpr (formatKind<T>() == Kind::Char) {
      result.character = value;
    } else if constexpr (formatKind<T>() == Kind::Signed) {
      result.signedInteger = value;
    } else if constexpr (formatKind<T>() == Kind::Unsigned) {
      result.unsignedInteger = value;
    } else if constexpr (formatKind<T>() == Kind::Float) {
      result.real = value;
    } else if constexpr (formatKind<T>() == Kind::Double) {
      result.wideReal = value;
    } else if constexpr (formatKind<T>() == Kind::Text) {
      std::string_view text = value;
      result.text = {text.data(), text.size()};
    } else if constexpr (formatKind<T>() == Kind::SafeText) {
      result.text = {value.str().data(), value.str().size()};
    } else if constexpr (formatKind<T>() == Kind::Pointer) {
      result.pointer = value;
    } else {
      result.object = {&value, [](const void* address) {
                         return std::string(static_cast<const T*>(address)->str());
                       }};
    }
  }
  return result;
}

/// A pattern does not go with its values: reached at compile time, it is an error there.
inline void patternDoesNotFit() { std::abort(); }

/// Whether a value of this kind can have the specification: only integers have 'x', and so on.
consteval void checkSpecification(std::string_view specification, FormatValue::Kind kind) {
  using Kind = FormatValue::Kind;
  if (specification.empty())
    return;
  bool isInteger = kind == Kind::Signed || kind == Kind::Unsigned;
  bool isReal = kind == Kind::Float || kind == Kind::Double;
  if (isInteger && specification.find('.') != specification.npos)
    patternDoesNotFit();
  std::string_view last = specification.substr(specification.size() - 1);
  if (last.find_first_of("bBdoxX") != last.npos && !isInteger)
    patternDoesNotFit();
  if (last.find_first_of("aAeEfFgG") != last.npos && !isReal)
    patternDoesNotFit();
}

/// Checks that every field of a pattern has a value that it can show, and that every value is
/// shown.
consteval void checkPattern(std::string_view pattern, std::span<const FormatValue::Kind> kinds,
                            bool hasNames) {
  size_t next = 0;
  size_t shown = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '}' && (++i == pattern.size() || pattern[i] != '}'))
      patternDoesNotFit();
    if (pattern[i] != '{')
      continue;
    if (pattern.substr(i + 1, 1) == "{") {
      ++i;
      continue;
    }
    size_t end = i + 1;
    size_t index = 0;
    while (end < pattern.size() && pattern[end] >= '0' && pattern[end] <= '9')
      index = 10 * index + (pattern[end++] - '0');
    bool hasName =
        end == i + 1 && end < pattern.size() && pattern[end] != '}' && pattern[end] != ':';
    while (hasName && end < pattern.size() && pattern[end] != '}' && pattern[end] != ':')
      ++end;
    if (end == i + 1)
      index = next++;
    if (hasName ? !hasNames : index >= kinds.size())
      patternDoesNotFit();
    if (!hasName && index + 1 > shown)
      shown = index + 1;
    size_t start = end;
    while (end < pattern.size() && pattern[end] != '}') {
      if (pattern[end] == '{') { // a width or a precision
        if (next++ >= kinds.size() || pattern.substr(end + 1, 1) != "}")
          patternDoesNotFit();
        shown = next > shown ? next : shown;
        ++end;
      }
      ++end;
    }
    if (end == pattern.size())
      patternDoesNotFit();
    if (!hasName)
      checkSpecification(pattern.substr(start, end - start), kinds[index]);
    i = end;
  }
  if (shown < kinds.size() && !hasNames)
    patternDoesNotFit();
}

} // namespace detail

/// A pattern for values of these types. One that does not fit them does not compile.
template <class... Values> class FormatPattern {
public:
  template <TextLike Text> consteval FormatPattern(const Text& pattern) : text(pattern) {
    constexpr size_t count = sizeof...(Values);
    std::array<FormatValue::Kind, count> kinds{
        detail::formatKind<std::remove_cvref_t<Values>>()...};
    detail::checkPattern(text, kinds, (detail::isNamed<std::remove_cvref_t<Values>> || ...));
  }

  std::string_view text;
};

/// The same for a pattern that is made at run time. Throws fmt::format_error if a field has no
/// value, or has one that its specification does not go with.
std::string formatValues(std::string_view pattern, std::span<const FormatValue> values);

template <class... Values>
std::string formattedAs(std::string_view pattern, const Values&... values) {
  std::array<FormatValue, sizeof...(Values)> erased{detail::formatValue(values)...};
  return formatValues(pattern, erased);
}

template <class... Values>
std::string formatted(FormatPattern<std::type_identity_t<Values>...> pattern,
                      const Values&... values) {
  return formattedAs(pattern.text, values...);
}

/// The elements of a range, one after another.
template <class Range> std::string joinedText(const Range& range, std::string_view separator) {
  std::string text;
  bool isFirst = true;
  for (const auto& element : range) {
    if (!std::exchange(isFirst, false))
      text += separator;
    FormatValue value = detail::formatValue(element);
    text += formatValues("{}", std::span(&value, 1));
  }
  return text;
}

} // namespace kvopt
