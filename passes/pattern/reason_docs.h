// The user's documentation of each reason code: a sentence, a remedy, an example.
#pragma once

#include "passes/pattern/reason.h"

namespace kvopt::pattern {

struct ReasonDoc {
  ReasonCode code;
  /// Remedy for the user, in whole sentences.
  const char* remedy;
  /// A small graph, or the way in which exporters produce it.
  const char* example;
  /// Remedy in one line, for refusals without a hint of their own.
  const char* hint;
};

/// Every code once, in the order of `reasonTable`.
llvm::ArrayRef<ReasonDoc> reasonDocs();
/// Entry of the code. Its texts are empty if the table has no entry; a test refuses that.
const ReasonDoc& reasonDoc(ReasonCode code);

/// The failure's own hint, or the usual hint of its code.
std::string hintFor(const MatchFailure& failure);

/// Text of the page docs/reasons.md.
std::string reasonsMarkdown();

} // namespace kvopt::pattern
