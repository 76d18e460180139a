// check: proves that two models compute the same, without running them.
//
//   CheckReport report = checkModels({before, manifest}, {after, manifestOfAfter});
//
// Values of both models that are computed in the same way have the same class (classes.h). Where
// the models differ, the smallest subgraphs between values of equal classes are evaluated in exact
// arithmetic (field.h) over a small scope (scope.h) and compared.
#pragma once

#include "check/regions/report.h"

namespace kvopt::check {

/// Checks each output of the second model, and each cache that its manifest describes, against the
/// first model. `seed` selects the fields. Equality is proved over the real numbers: rounding is
/// not looked at. A region is not decided if it needs more than `mostWork` products, or all need
/// three times as many.
CheckReport checkModels(DrivenModel before, DrivenModel after, unsigned seed = 0,
                        int64_t mostWork = Arithmetic::usualWork);

} // namespace kvopt::check
