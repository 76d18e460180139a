// The option --input.
#include "cli/support/input_option.h"

#include "support/diagnostic.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace runtime;

void addInputOption(CLI::App& command, std::vector<std::string>& texts) {
  command
      .add_option("--input", texts,
                  "NAME=VALUE[@EXTENTS]: what to feed an input, as in bias=additive_mask or "
                  "kind=zeros@batch,new; may be given again")
      ->allow_extra_args(false);
}

llvm::Expected<std::vector<InputRecipe>> recipesOf(llvm::ArrayRef<std::string> texts) {
  std::vector<InputRecipe> recipes;
  for (const std::string& text : texts) {
    auto recipe = parseInputRecipe(text);
    if (!recipe)
      return recipe.takeError();
    for (const InputRecipe& other : recipes)
      if (other.input == recipe->input)
        return usageError("--input {} is given twice", other.input);
    recipes.push_back(std::move(*recipe));
  }
  return recipes;
}

} // namespace kvopt::cli
