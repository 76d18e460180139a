// Padding of a step, and its text.
#include "check/caches/step.h"

namespace kvopt::check {

int64_t otherExtent(const Step& step) {
  constexpr int64_t smallest = 2, different = 3;
  return smallest + step.total() % different;
}

bool Step::isHidden(int64_t row, int64_t column) const {
  const int64_t hidden = padding - (batch - 1 - row);
  if (hidden <= 0)
    return false;
  if (!padsRight)
    return column < hidden;
  return past == 0 ? column >= tokens - hidden : column >= 1 && column < 1 + hidden;
}

std::string Step::text() const {
  std::string result = "batch " + std::to_string(batch) + ", past " + std::to_string(past) + ", " +
                       std::to_string(tokens) + " new";
  if (padding)
    result += ", " + std::to_string(padding) + " hidden on the " + (padsRight ? "right" : "left");
  if (token >= 0)
    result += ", token " + std::to_string(token);
  if (spare)
    result += ", " + std::to_string(spare) + " free";
  return result;
}

void enter(Thresholds& thresholds, const Step& step) {
  thresholds.enter({step.batch, step.past, step.tokens, step.spare, otherExtent(step)},
                   step.padding > 0);
}

} // namespace kvopt::check
