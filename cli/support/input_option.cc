// The option --input.
#include "cli/support/input_option.h"

#include "cli/support/command_options.h"
#include "support/diagnostic.h"

namespace kvopt::cli {
using namespace runtime;

void addInputOption(CommandOptions& add, std::vector<std::string>& texts) {
  add.add("--input", texts)->allow_extra_args(false);
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
