// InputRecipe: the user's choice of values for an input of a model.
#pragma once

#include "ir/manifest/manifest.h"

#include "llvm/ADT/ArrayRef.h"

namespace kvopt::ir {

/// Text of the form `NAME=VALUE` or `NAME=VALUE@EXTENTS`, as in `--input`.
///
/// VALUE is `zeros`, `ones`, `range` (0, 1, 2, … along the last axis), `random` (in [-1, 1), the
/// same at every step), numbers separated by commas (repeated over all elements), a word of
/// ManifestLength::feed, such as `past_length`, or of ManifestInput::feed, such as `additive_mask`.
/// EXTENTS are numbers and the words `batch`, `new`, `past` and `total`, separated by commas; by
/// default, they follow from the declared type.
struct InputRecipe {
  enum class Kind { Zeros, Ones, Range, Random, Numbers, Length, Feed, State };

  std::string input;
  Kind kind = Kind::Zeros;
  /// For Kind::Numbers, and for Kind::State the contents before the first step; not empty.
  std::vector<double> numbers;
  LengthFeed length = LengthFeed::PastLength; ///< for Kind::Length; not BlockTable
  InputFeed feed = InputFeed::Any;            ///< for Kind::Feed; not Any
  bool hasShape = false;
  std::vector<ManifestExtent> shape; ///< if `hasShape`
};

/// Parses the text. A usage error describes what is wrong.
llvm::Expected<InputRecipe> parseInputRecipe(llvm::StringRef text);
/// Parses `NAME=VALUE` as in `--state`: VALUE is `zeros`, `ones` or numbers separated by commas.
llvm::Expected<InputRecipe> parseStateRecipe(llvm::StringRef text);
/// The recipes of several texts, of `--input` and of `--state`. A usage error where two are for one
/// input.
llvm::Expected<std::vector<InputRecipe>> parseInputRecipes(llvm::ArrayRef<std::string> texts,
                                                           llvm::ArrayRef<std::string> states = {});

} // namespace kvopt::ir
