// Strict numbers and words.
#include "cli/support/option_values.h"

#include "cli/support/style.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

namespace kvopt::cli {
namespace {

/// What an argument gives to the option called `name`: nullopt if it is for another option, an
/// empty text if the value is the next argument.
std::optional<llvm::StringRef> valueIn(llvm::StringRef argument, const std::string& name) {
  if (!argument.consume_front(name))
    return std::nullopt;
  const bool isLong = llvm::StringRef(name).startswith("--");
  if (isLong && !argument.empty() && !argument.consume_front("="))
    return std::nullopt;
  return argument;
}

/// Throws where an argument gives the option a list with an empty part.
void checkList(const CLI::Option& option, const std::string& name, int argc,
               const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::optional<llvm::StringRef> attached = valueIn(argv[i], name);
    if (!attached || (attached->empty() && i + 1 >= argc))
      continue;
    const llvm::StringRef list = attached->empty() ? argv[i + 1] : *attached;
    llvm::SmallVector<llvm::StringRef, 8> parts;
    list.split(parts, option.get_delimiter());
    if (llvm::is_contained(parts, ""))
      throw CLI::ValidationError(option.get_name(),
                                 fmt::format("'{}' has an empty part", list.str()));
  }
}

} // namespace

void checkLists(const CLI::App& command, int argc, const char* const* argv) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_delimiter() == '\0')
      continue;
    for (const std::string& name : option->get_lnames())
      checkList(*option, "--" + name, argc, argv);
    for (const std::string& name : option->get_snames())
      checkList(*option, "-" + name, argc, argv);
  }
}

std::string checkWholeNumber(const std::string& text) {
  uint64_t value = 0;
  const bool hasDigitsOnly = !text.empty() && llvm::all_of(text, llvm::isDigit);
  if (!hasDigitsOnly)
    return fmt::format("'{}' is not a whole number", text);
  if (llvm::StringRef(text).getAsInteger(10, value))
    return fmt::format("'{}' is too large", text);
  return "";
}

std::string checkRealNumber(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || stop != end || error == std::errc::invalid_argument)
    return fmt::format("'{}' is not a number", text);
  if (error == std::errc::result_out_of_range)
    return fmt::format("'{}' is out of range", text);
  if (!std::isfinite(value))
    return fmt::format("'{}' is not a finite number", text);
  if (std::signbit(value))
    return fmt::format("'{}' is negative", text);
  return "";
}

std::string checkWord(const std::string& text) { return text.empty() ? "the value is empty" : ""; }

} // namespace kvopt::cli
