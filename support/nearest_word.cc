// Near is up to a third of the letters.
#include "support/nearest_word.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>

namespace kvopt {

std::string nearestWord(std::string_view word, std::span<const std::string> known) {
  unsigned least = std::max<unsigned>(1, static_cast<unsigned>(word.size()) / 3) + 1;
  std::string found;
  for (const std::string& candidate : known)
    if (const unsigned distance =
            llvm::StringRef(word.data(), word.size()).edit_distance(candidate, true, least);
        distance < least) {
      least = distance;
      found = candidate;
    }
  return found;
}

std::string didYouMean(std::string_view word, std::span<const std::string> known) {
  const std::string meant = nearestWord(word, known);
  return meant.empty() ? "" : "; did you mean '" + meant + "'?";
}

} // namespace kvopt
