// Comparison of two tensors: how far apart, where, and whether bit for bit the same.
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
  /// Elements beyond the tolerance. A NaN agrees with a NaN only, an infinity with itself only.
  int64_t violations = 0;
  /// Largest |a - b|; infinite where only one side is NaN or infinite.
  double maxAbs = 0;
  /// Most representable numbers between a and b (for integers |a - b|); UINT64_MAX
  /// where only one side is NaN.
  uint64_t maxUlp = 0;
  bool bitExact = true;
  bool nanMismatch = false;
  /// Where the first of the largest |a - b| is, and the two values; empty while nothing differs.
  Extents worst;
  double worstA = 0;
  double worstB = 0;

  bool isWithin() const { return violations == 0; }
  /// Adds the result of comparing another part.
  void merge(const Comparison& other);
};

/// Compares float, double, float16, bfloat16, bool and integer tensors of one element type and
/// shape, strided or not; an error when those differ. With `select`, only elements at positions for
/// which it is true.
llvm::Expected<Comparison>
compareTensors(const TensorView& a, const TensorView& b, Tolerance tolerance = {},
               llvm::function_ref<bool(llvm::ArrayRef<int64_t>)> select = nullptr);

} // namespace kvopt::runtime
