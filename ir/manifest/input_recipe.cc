// Parser for the values of --input.
#include "ir/manifest/input_recipe.h"

#include "ir/manifest/manifest_words.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/nearest_word.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::ir {

namespace {

using Kind = InputRecipe::Kind;

/// Maximum number of entries in a text from a command line.
constexpr size_t mostEntries = 65536;

struct KindWord {
  const char* text;
  Kind kind;
};
/// Values that are neither feeds nor numbers.
constexpr KindWord recipeWords[] = {
    {"zeros", Kind::Zeros}, {"ones", Kind::Ones}, {"range", Kind::Range}, {"random", Kind::Random}};

/// All words that a value may be.
std::vector<std::string> valueWords() {
  std::vector<std::string> words;
  for (const KindWord& word : recipeWords)
    words.emplace_back(word.text);
  for (const ManifestWord<LengthFeed>& word : feedWords)
    if (word.value != LengthFeed::BlockTable)
      words.emplace_back(word.text);
  for (const ManifestWord<InputFeed>& word : inputFeedWords)
    if (word.value != InputFeed::Any && word.value != InputFeed::Constant)
      words.emplace_back(word.text);
  return words;
}

llvm::Error parseExtents(llvm::StringRef text, InputRecipe& recipe) {
  const std::vector<std::string> extentWords{"batch", "new", "past", "total"};
  recipe.hasShape = true;
  llvm::SmallVector<llvm::StringRef, 4> words;
  if (!text.empty())
    text.split(words, ',');
  for (llvm::StringRef word : words) {
    int64_t number = 0;
    if (llvm::is_contained(extentWords, word))
      recipe.shape.emplace_back(word.str());
    else if (!word.getAsInteger(10, number) && number >= 0)
      recipe.shape.emplace_back(number);
    else
      return usageError("--input {}: '{}' is not an extent{}", recipe.input, word,
                        didYouMean(std::string_view(word), extentWords))
          .hint("extents are numbers, batch, new, past and total, separated by commas");
  }
  return llvm::Error::success();
}

llvm::Error parseNumbers(llvm::StringRef text, InputRecipe& recipe) {
  llvm::SmallVector<llvm::StringRef, 8> words;
  text.split(words, ',');
  if (words.size() > mostEntries)
    return usageError("--input {}: there are {} numbers; the limit is {}", recipe.input,
                      words.size(), mostEntries);
  for (llvm::StringRef word : words) {
    double number = 0;
    if (word.trim().getAsDouble(number))
      return usageError("--input {}: '{}' is neither a number nor a known word{}", recipe.input,
                        word, didYouMean(std::string_view(word), valueWords()))
          .hint(formatted("{}, or numbers", joinedText(valueWords(), ", ")));
    if (!std::isfinite(number))
      return usageError("--input {}: '{}' is not a finite number", recipe.input, word);
    recipe.numbers.push_back(number);
  }
  return llvm::Error::success();
}

} // namespace

llvm::Expected<InputRecipe> parseInputRecipe(llvm::StringRef text) {
  // Names of inputs may contain any character, including '='.
  auto [name, rest] = text.rsplit('=');
  if (name.empty() || !text.contains('='))
    return usageError("--input '{}' is not NAME=VALUE", text);
  InputRecipe recipe;
  recipe.input = name.str();
  auto [value, extents] = rest.split('@');
  if (rest.contains('@'))
    if (llvm::Error error = parseExtents(extents, recipe))
      return error;
  for (const ManifestWord<InputFeed>& word : inputFeedWords)
    if (value == word.text && word.value != InputFeed::Any && word.value != InputFeed::Constant) {
      recipe.kind = Kind::Feed;
      recipe.feed = word.value;
      return recipe;
    }
  for (const ManifestWord<LengthFeed>& word : feedWords)
    if (value == word.text && word.value != LengthFeed::BlockTable) {
      recipe.kind = Kind::Length;
      recipe.length = word.value;
      return recipe;
    }
  auto kind = Kind::Numbers;
  for (const KindWord& word : recipeWords)
    if (value == word.text)
      kind = word.kind;
  recipe.kind = kind;
  if (kind == Kind::Numbers)
    if (llvm::Error error = parseNumbers(value, recipe))
      return error;
  return recipe;
}

llvm::Expected<InputRecipe> parseStateRecipe(llvm::StringRef text) {
  auto [name, value] = text.rsplit('=');
  if (name.empty() || !text.contains('='))
    return usageError("--state '{}' is not NAME=VALUE", text);
  InputRecipe recipe;
  recipe.input = name.str();
  recipe.kind = Kind::State;
  if (value == "zeros" || value == "ones") {
    recipe.numbers = {value == "ones" ? 1.0 : 0.0};
    return recipe;
  }
  llvm::SmallVector<llvm::StringRef, 8> words;
  value.split(words, ',');
  for (llvm::StringRef word : words) {
    double number = 0;
    if (word.trim().getAsDouble(number) || !std::isfinite(number))
      return usageError("--state {}: '{}' is not a number", recipe.input, word)
          .hint("zeros, ones, or numbers");
    recipe.numbers.push_back(number);
  }
  return recipe;
}

llvm::Expected<std::vector<InputRecipe>> parseInputRecipes(llvm::ArrayRef<std::string> texts,
                                                           llvm::ArrayRef<std::string> states) {
  std::vector<InputRecipe> recipes;
  const auto add = [&](llvm::Expected<InputRecipe> recipe) -> llvm::Error {
    if (!recipe)
      return recipe.takeError();
    for (const InputRecipe& other : recipes)
      if (other.input == recipe->input)
        return usageError("--{} {} is given twice", other.kind == Kind::State ? "state" : "input",
                          other.input);
    recipes.push_back(std::move(*recipe));
    return llvm::Error::success();
  };
  for (const std::string& text : texts)
    if (llvm::Error error = add(parseInputRecipe(text)))
      return error;
  for (const std::string& text : states)
    if (llvm::Error error = add(parseStateRecipe(text)))
      return error;
  return recipes;
}

} // namespace kvopt::ir
