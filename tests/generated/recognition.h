// What kvopt finds in a generated decoder, against what it is known to compute.
#pragma once

#include "driver/recover.h"
#include "tests/generated/generated_decoder.h"

namespace kvopt::generated {

/// What was found in one decoder.
struct Recognition {
  size_t sites = 0;
  size_t matched = 0;
  std::set<std::string> reasons; ///< of sites that are missed
  /// A sentence for each fact of a matched site that is not so.
  std::vector<std::string> wrongFacts;
  /// All sites are matched, and every mask is proved.
  bool provesMasks = true;
  /// A cache is taken to have all query heads, where the decoder repeats fewer.
  bool cachesRepeats = false;

  bool isWhole() const { return matched != 0 && matched == sites; }
};

/// Checks the facts of a decoder without a near miss, and counts the sites of any.
Recognition recognitionOf(const GeneratedDecoder& decoder, const driver::Toolkit& toolkit);

/// Rewrites what a target takes of the decoder and runs both. Empty where they compute the same or
/// nothing was taken, and otherwise what differs.
std::string rewriteDifference(const GeneratedDecoder& decoder, llvm::StringRef target,
                              const driver::Toolkit& toolkit);

} // namespace kvopt::generated
