// Strict checks of numbers, words and ranges.
#include "driver/options/option_check.h"

#include "support/format.h"
#include "support/nearest_word.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <charconv>
#include <cmath>

namespace kvopt::driver {

std::string checkWholeNumber(const std::string& text) {
  uint64_t value = 0;
  const bool hasDigitsOnly = !text.empty() && llvm::all_of(text, llvm::isDigit);
  if (!hasDigitsOnly)
    return formatted("'{}' is not a whole number", text);
  if (llvm::StringRef(text).getAsInteger(10, value))
    return formatted("'{}' is too large", text);
  return "";
}

std::string checkRealNumber(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || stop != end || error == std::errc::invalid_argument)
    return formatted("'{}' is not a number", text);
  if (error == std::errc::result_out_of_range)
    return formatted("'{}' is out of range", text);
  if (!std::isfinite(value))
    return formatted("'{}' is not a finite number", text);
  if (std::signbit(value))
    return formatted("'{}' is negative", text);
  return "";
}

std::string checkWord(const std::string& text) { return text.empty() ? "the value is empty" : ""; }

namespace {

std::string checkMembership(const OptionInfo& info, const std::string& text) {
  const std::vector<std::string> words = info.words();
  if (llvm::is_contained(words, text))
    return "";
  return formatted("'{}' is none of {}{}", text, joinedText(words, ", "), didYouMean(text, words));
}

std::string checkRange(const OptionInfo& info, const std::string& text) {
  uint64_t value = 0;
  // A number that does not fit was refused above.
  if (llvm::StringRef(text).getAsInteger(10, value) || (value >= info.least && value <= info.most))
    return "";
  if (value > info.most && info.most == INT64_MAX)
    return formatted("'{}' is too large", text);
  return formatted("{} is not from {} to {}", text, info.least, info.most);
}

} // namespace

std::string checkValue(const OptionInfo& info, const std::string& text) {
  switch (info.type) {
  case OptionType::Whole:
  case OptionType::Wholes:
    if (std::string problem = checkWholeNumber(text); !problem.empty())
      return problem;
    return checkRange(info, text);
  case OptionType::Real:
    return checkRealNumber(text);
  case OptionType::Word:
  case OptionType::Words:
    return text.empty() ? checkWord(text) : checkMembership(info, text);
  default:
    return checkWord(text);
  }
}

} // namespace kvopt::driver
