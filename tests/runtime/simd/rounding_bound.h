// The bound of rounding errors in a sum whose order is not known.
#pragma once

namespace kvopt {

/// Unit roundoff of float32.
inline constexpr double floatUnit = 0x1p-24;

/// gamma(n) = n u / (1 - n u): a sum of n rounded terms, in any order, is off by at most this many
/// times the sum of their magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, lemma
/// 3.1; docs/tolerances.md). A sum of n products takes part in n roundings, and in n + 1 if it is
/// added to another number.
inline constexpr double roundings(double count, double unit = floatUnit) {
  return count * unit / (1 - count * unit);
}

} // namespace kvopt
