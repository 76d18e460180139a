// Replays of the first difference in floats.
#include "driver/check/confirmation.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using check::Obligation;
using check::Verdict;

namespace {

bool isDifferentElement(const Obligation& part) {
  return part.verdict == Verdict::Different && part.hasElements();
}

} // namespace

void confirmDifference(check::CheckReport& report, const check::DrivenModel& before,
                       const check::DrivenModel& after, const Toolkit& toolkit) {
  const auto first = llvm::find_if(report.obligations, isDifferentElement);
  if (first == report.obligations.end())
    return;
  const check::Step step = first->counterexample;
  const auto run = [&](const check::Step& at) {
    return toolkit.runner ? toolkit.runner->replay(before, after, at, report.seed, toolkit)
                          : FloatReplay{std::nullopt, noRuntime};
  };
  const FloatReplay replay = run(step);
  if (replay.isVisible.value_or(false))
    return;
  // Caches of another form may not take recorded rows. A difference without them is one, too.
  check::Step start = step;
  start.past = 0;
  if (!replay.isVisible && step.past > 0 && run(start).isVisible.value_or(false))
    return;
  // The largest difference depends on the processor, and certificates do not.
  const std::string doubt =
      replay.isVisible
          ? formatted("differs in exact arithmetic, but not in floats: {}", step.text())
          : formatted("differs in exact arithmetic, which no run in floats confirms ({}): {}",
                      step.text(), replay.remark);
  for (Obligation& part : report.obligations)
    if (isDifferentElement(part)) {
      part.verdict = Verdict::Skipped;
      part.reason = doubt;
    }
}

} // namespace kvopt::driver
