// Words and counts of verdicts.
#include "check/regions/report.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::check {

const char* verdictWord(Verdict verdict) {
  switch (verdict) {
  case Verdict::Proved:
    return "proved";
  case Verdict::ProvedReduced:
    return "proved-reduced";
  case Verdict::Tested:
    return "tested";
  case Verdict::Different:
    return "different";
  case Verdict::Skipped:
    break;
  }
  return "skipped";
}

Verdict CheckReport::verdict() const {
  Verdict worst = Verdict::Proved;
  bool hasOutput = false;
  for (const Obligation& obligation : obligations) {
    if (!obligation.isOutput)
      continue;
    hasOutput = true;
    if (obligation.verdict == Verdict::Different)
      return Verdict::Different;
    worst = std::max(worst, obligation.verdict);
  }
  return hasOutput ? worst : Verdict::Skipped;
}

size_t CheckReport::count(Verdict verdict) const {
  return static_cast<size_t>(llvm::count_if(
      obligations, [&](const Obligation& obligation) { return obligation.verdict == verdict; }));
}

} // namespace kvopt::check
