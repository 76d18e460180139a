// What to feed inputs that kvopt does not know: the option --input.
#pragma once

#include "runtime/session/input_recipe.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace kvopt::cli {

class CommandOptions;

/// Adds `--input`.
void addInputOption(CommandOptions& add, std::vector<std::string>& texts);
/// The recipes of `--input`, which is given once for each input.
llvm::Expected<std::vector<runtime::InputRecipe>> recipesOf(llvm::ArrayRef<std::string> texts);

} // namespace kvopt::cli
