// Conversion of options to a request.
#include "driver/rewrite/rewrite_words.h"

#include "passes/targets/target.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {

llvm::Error RewriteWords::read() {
  if (!calibration.text.empty() && !calibration.numbers.empty())
    return usageError("--calibration-text excludes --calibration-tokens");
  auto rows = targets::parseCapacity(capacity);
  if (!rows)
    return rows.takeError();
  request.capacity = *rows;
  if (!layers.empty()) {
    auto numbers = targets::parseLayers(layers, ',');
    if (!numbers)
      return numbers.takeError();
    request.layers = std::move(*numbers);
  }
  auto recipes = ir::parseInputRecipes(inputs, states);
  if (!recipes)
    return recipes.takeError();
  request.recipes = std::move(*recipes);
  auto tokens = readTokens(calibration);
  if (!tokens)
    return tokens.takeError();
  request.calibration = std::move(*tokens);
  request.calibratesWithText = !calibration.text.empty();
  return llvm::Error::success();
}

void setCommand(RewriteWords& words, Command command) {
  words.request.addCaches = command == Command::AddCache;
  words.request.freeExtents = command == Command::MakeDynamic;
}

bool isFormChosen(const RewriteWords& words, Command command) {
  return words.form.to.empty() && command == Command::Rewrite;
}

llvm::Expected<std::vector<Form>> formsOf(const RewriteWords& words, Command command, bool genai) {
  if (command != Command::Rewrite) {
    auto form = chooseForm(words.form, "primitive");
    if (!form)
      return form.takeError();
    return std::vector<Form>{*form};
  }
  auto forms = chooseForms(words.form);
  if (!forms || !genai)
    return forms;
  llvm::erase_if(*forms, [](const Form& form) {
    const bool isRun = form.engine == Engine::Ort || form.engine == Engine::Kvopt;
    return !isRun || form.cache != CacheKind::Buffer || form.isLatent;
  });
  if (forms->empty())
    return usageError("--genai-config is for --to ort and --to kvopt with caches in buffers");
  return forms;
}

} // namespace kvopt::driver
