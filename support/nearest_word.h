// The known word that a misspelled one is nearest to.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kvopt {

/// The known word that differs from `word` in the fewest letters; empty where none is near.
std::string nearestWord(std::string_view word, std::span<const std::string> known);

/// The end of a message about an unknown word: "; did you mean 'ring'?". Empty where none is near.
std::string didYouMean(std::string_view word, std::span<const std::string> known);

} // namespace kvopt
