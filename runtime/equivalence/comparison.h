// Comparison of two tensors: the largest difference, its position, and bitwise equality.
#pragma once

#include "runtime/memory/tensor_view.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

namespace kvopt::runtime {

/// Two elements agree when |a - b| <= absolute + relative * |b|.
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

struct Comparison {
  int64_t compared = 0;
  /// Number of elements beyond the tolerance. A NaN agrees only with a NaN, an infinity only with
  /// the same infinity.
  int64_t violations = 0;
  /// Largest |a - b|; infinite if only one side is NaN or infinite.
  double maxAbs = 0;
  /// Largest number of representable numbers between a and b (for integers |a - b|); UINT64_MAX if
  /// only one side is NaN.
  uint64_t maxUlp = 0;
  bool bitExact = true;
  bool nanMismatch = false;
  /// Position of the first element with the largest |a - b|, and both values; empty if all are
  /// equal.
  Extents worst;
  double worstA = 0;
  double worstB = 0;

  bool isWithin() const { return violations == 0; }
  /// Adds the result of comparing another part.
  void merge(const Comparison& other);
};

/// Whether the element at a position is NaN. Integers never are.
bool isNan(const TensorView& view, llvm::ArrayRef<int64_t> index);

/// Compares float, double, float16, bfloat16, bool and integer tensors, which may be strided. An
/// error if element types or shapes differ. With `select`, compares only elements at positions for
/// which it returns true.
llvm::Expected<Comparison>
compareTensors(const TensorView& a, const TensorView& b, Tolerance tolerance = {},
               llvm::function_ref<bool(llvm::ArrayRef<int64_t>)> select = nullptr);

} // namespace kvopt::runtime
