// What each reason code means to a user: a sentence, what to do about it, an example.
#pragma once

#include "passes/pattern/reason.h"

namespace kvopt::pattern {

struct ReasonDoc {
  ReasonCode code;
  /// What the user can do about it, in whole sentences.
  const char* remedy;
  /// A small graph, or the situation in which exporters produce it.
  const char* example;
  /// What to do about it in one line; for refusals that carry no hint of their own.
  const char* hint;
};

/// Every code once, in the order of `reasonTable`.
llvm::ArrayRef<ReasonDoc> reasonDocs();
/// The code's entry; empty texts for a code without one, which a test refuses.
const ReasonDoc& reasonDoc(ReasonCode code);

/// The failure's own hint, or the usual one of its code.
std::string hintFor(const MatchFailure& failure);

/// The page docs/reasons.md.
std::string reasonsMarkdown();

} // namespace kvopt::pattern
