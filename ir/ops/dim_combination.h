// Functions of extents that several operator families apply to lists of integers.
#pragma once

#include "ir/dims/dim.h"

namespace kvopt::ir {

using Combine = Dim (*)(const Dim&, const Dim&);

inline Dim sum(const Dim& a, const Dim& b) { return a + b; }
inline Dim product(const Dim& a, const Dim& b) { return a * b; }
inline Dim smaller(const Dim& a, const Dim& b) {
  return a.isKnownLessEqual(b) ? a : b.isKnownLessEqual(a) ? b : Dim::unknown();
}
inline Dim larger(const Dim& a, const Dim& b) {
  return a.isKnownLessEqual(b) ? b : b.isKnownLessEqual(a) ? a : Dim::unknown();
}
/// An element of a shape operand as an extent; unknown if it may be negative.
inline Dim asExtent(const Dim& value) {
  return value.isKnownNonNegative() ? value : Dim::unknown();
}

} // namespace kvopt::ir
