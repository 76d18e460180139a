// Strict parsing of numbers and words.
#include "cli/support/option_values.h"

#include "cli/support/style.h"
#include "support/format.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

namespace kvopt::cli {
namespace {

/// Value that an argument gives to the option `name`: nullopt if it is for another option, an empty
/// text if the value is the next argument.
std::optional<llvm::StringRef> valueIn(llvm::StringRef argument, const std::string& name) {
  if (!argument.consume_front(name))
    return std::nullopt;
  const bool isLong = startsWith(name, "--");
  if (isLong && !argument.empty() && !argument.consume_front("="))
    return std::nullopt;
  return argument;
}

/// Throws if an argument gives the option a list with an empty part.
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
                                 formatted("'{}' has an empty part", list.str()));
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

} // namespace kvopt::cli
