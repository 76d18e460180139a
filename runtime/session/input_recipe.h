// InputRecipe: the user's choice of values for an input of a model.
#pragma once

#include "ir/manifest/manifest.h"

#include "llvm/ADT/ArrayRef.h"

namespace kvopt::runtime {

/// Text of the form `NAME=VALUE` or `NAME=VALUE@EXTENTS`, as in `--input`.
///
/// VALUE is `zeros`, `ones`, `range` (0, 1, 2, … along the last axis), `random` (in [-1, 1), the
/// same at every step), numbers separated by commas (repeated over all elements), `past_length`,
/// `total_length`, or a word of ManifestInput::feed, such as `additive_mask`. EXTENTS are numbers
/// and the words `batch`, `new`, `past` and `total`, separated by commas; by default, they follow
/// from the declared type.
struct InputRecipe {
  enum class Kind { Zeros, Ones, Range, Random, Numbers, PastLength, TotalLength, Feed };

  std::string input;
  Kind kind = Kind::Zeros;
  std::vector<double> numbers;             ///< for Kind::Numbers; not empty
  ir::InputFeed feed = ir::InputFeed::Any; ///< for Kind::Feed; not Any
  bool hasShape = false;
  std::vector<ir::ManifestExtent> shape; ///< if `hasShape`
};

/// Parses the text. A usage error describes what is wrong.
llvm::Expected<InputRecipe> parseInputRecipe(llvm::StringRef text);
/// The recipes of several texts. A usage error where two are for one input.
llvm::Expected<std::vector<InputRecipe>> parseInputRecipes(llvm::ArrayRef<std::string> texts);

} // namespace kvopt::runtime
