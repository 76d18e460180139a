// InputRecipe: what the user says an input of a model is to be fed.
#pragma once

#include "ir/manifest/manifest.h"

namespace kvopt::runtime {

/// `NAME=VALUE` or `NAME=VALUE@EXTENTS`, as `--input` takes it.
///
/// VALUE is `zeros`, `ones`, `range` (0, 1, 2, … along the last axis), `random` (in [-1, 1), the
/// same at every step), numbers separated by commas (one after the other over all elements, and
/// again from the first), `past_length`, `total_length`, or a word of ManifestInput::feed, such as
/// `additive_mask`. EXTENTS are numbers and the words `batch`, `new`, `past` and `total`, separated
/// by commas; unless given, they follow from the declared type.
struct InputRecipe {
  enum class Kind { Zeros, Ones, Range, Random, Numbers, PastLength, TotalLength, Feed };

  std::string input;
  Kind kind = Kind::Zeros;
  std::vector<double> numbers;             ///< of Kind::Numbers; not empty
  ir::InputFeed feed = ir::InputFeed::Any; ///< of Kind::Feed; not Any
  bool hasShape = false;
  std::vector<ir::ManifestExtent> shape; ///< if `hasShape`
};

/// A usage error says what is wrong with the text.
llvm::Expected<InputRecipe> parseInputRecipe(llvm::StringRef text);

} // namespace kvopt::runtime
