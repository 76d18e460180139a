// Extents of tensors at one point of evaluation, and the row-major order of their elements.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace kvopt::analysis {

using Extents = llvm::SmallVector<int64_t, 6>;

/// The number as an integer, clamped to the range of the type.
inline int64_t integerOf(double number) {
  constexpr double most = 4e18;
  return std::isnan(number) ? 0 : static_cast<int64_t>(std::clamp(number, -most, most));
}

/// The product of extents; nullopt if one is negative or the product exceeds `most`.
std::optional<int64_t> countOf(llvm::ArrayRef<int64_t> extents, int64_t most = int64_t{1} << 40);

/// Distance between neighbors along each axis in row-major order, in elements.
Extents rowMajorStrides(llvm::ArrayRef<int64_t> extents);

/// The index of an element along each axis. Requires extents of at least 1.
Extents indexOf(int64_t element, llvm::ArrayRef<int64_t> extents);
int64_t elementAt(llvm::ArrayRef<int64_t> index, llvm::ArrayRef<int64_t> extents);

/// The broadcast shape of two shapes; nullopt if they do not broadcast.
std::optional<Extents> broadcastOf(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);

/// Maps each element of a result to the element of an operand with extents `operand` that is
/// broadcast to it.
class BroadcastElements {
public:
  BroadcastElements(llvm::ArrayRef<int64_t> result, llvm::ArrayRef<int64_t> operand);
  int64_t operator()(int64_t element) const;

private:
  Extents extents;
  Extents strides; ///< 0 along axes that are repeated
};

} // namespace kvopt::analysis
