// Coded rows: what codes and scales represent rows of numbers.
#pragma once

#include "check/arithmetic/constants.h"
#include "check/caches/cache_pairs.h"
#include "check/caches/step.h"

namespace kvopt::check {

/// The codes or the scales of rows, as the content of the pair says. Rounding is left out: a code
/// is the number divided by the scale of its row.
///
/// `rows` has the numbers; only its shape matters for scales. `numbersOfRows` has the same shape
/// with an extent of 1 along the scale's axis. n >= 0 is an earlier row, whose scale is any number
/// other than 0. -1 is a new row: its scale is the largest magnitude divided by the largest code.
/// Other negative numbers are rows that no token wrote, which have any scale.
Ref codedRows(const CachePair& pair, const Ref& rows, const Ref& numbersOfRows, const Step& step,
              Arithmetic& math);

/// The first element of each row along an axis, for the whole row; null if rows have none.
Ref firstOfRows(const Ref& rows, unsigned axis);

} // namespace kvopt::check
