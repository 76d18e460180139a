// Parser for the values of --input.
#include "runtime/session/input_recipe.h"

#include "ir/manifest/manifest_words.h"
#include "support/diagnostic.h"

#include "llvm/ADT/StringSwitch.h"

#include <cmath>

namespace kvopt::runtime {
using namespace ir;

namespace {

using Kind = InputRecipe::Kind;

/// Maximum number of entries in a text from a command line.
constexpr size_t mostEntries = 65536;

llvm::Error parseExtents(llvm::StringRef text, InputRecipe& recipe) {
  recipe.hasShape = true;
  llvm::SmallVector<llvm::StringRef, 4> words;
  if (!text.empty())
    text.split(words, ',');
  for (llvm::StringRef word : words) {
    int64_t number = 0;
    if (word == "batch" || word == "new" || word == "past" || word == "total")
      recipe.shape.emplace_back(word.str());
    else if (!word.getAsInteger(10, number) && number >= 0)
      recipe.shape.emplace_back(number);
    else
      return usageError("--input {}: '{}' is not an extent", recipe.input, word)
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
      return usageError("--input {}: '{}' is neither a number nor a known word", recipe.input, word)
          .hint("zeros, ones, range, random, past_length, total_length, token_ids, position_ids, "
                "visible_keys, hidden_keys, additive_mask, segment_ids, batch_rows, or numbers");
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
    if (value == word.text && word.value != InputFeed::Any) {
      recipe.kind = Kind::Feed;
      recipe.feed = word.value;
      return recipe;
    }
  const auto kind = llvm::StringSwitch<Kind>(value)
                        .Case("zeros", Kind::Zeros)
                        .Case("ones", Kind::Ones)
                        .Case("range", Kind::Range)
                        .Case("random", Kind::Random)
                        .Case("past_length", Kind::PastLength)
                        .Case("total_length", Kind::TotalLength)
                        .Default(Kind::Numbers);
  recipe.kind = kind;
  if (kind == Kind::Numbers)
    if (llvm::Error error = parseNumbers(value, recipe))
      return error;
  return recipe;
}

} // namespace kvopt::runtime
