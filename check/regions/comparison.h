// Comparison of the results of two models in one step.
#pragma once

#include "check/caches/feeding.h"
#include "check/regions/report.h"

namespace kvopt::check {

enum class Answer { Equal, Different, Undecided };

/// Compares two tensors element by element. Writes the first difference to `evidence`, and counts.
/// `pattern` receives the elements of equal tensors that are not all numbers. If `allowsHidden`,
/// the second tensor may be unspecified anywhere.
Answer compareElements(Ref before, Ref after, bool allowsHidden, Arithmetic& math,
                       Evidence& evidence, Ref& pattern);

/// Compares the rows that both results of a pair of caches hold.
Answer compareRows(Feeding& feeding, const Feeding::Pair& pair, const Step& step, const Ref& before,
                   const Ref& after, bool allowsHidden, Arithmetic& math, Evidence& evidence);

} // namespace kvopt::check
