// Row-major arithmetic.
#include "passes/analysis/evaluation/extents.h"

#include <algorithm>

namespace kvopt::analysis {

std::optional<int64_t> countOf(llvm::ArrayRef<int64_t> extents, int64_t most) {
  int64_t count = 1;
  bool isEmpty = false;
  for (int64_t extent : extents) {
    if (extent < 0)
      return std::nullopt;
    if (extent == 0)
      isEmpty = true;
    else if (count > most / extent)
      return std::nullopt;
    else
      count *= extent;
  }
  return isEmpty ? 0 : count;
}

Extents rowMajorStrides(llvm::ArrayRef<int64_t> extents) {
  Extents strides(extents.size(), 1);
  for (size_t axis = extents.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * extents[axis];
  return strides;
}

Extents indexOf(int64_t element, llvm::ArrayRef<int64_t> extents) {
  Extents index(extents.size(), 0);
  for (size_t axis = extents.size(); axis-- > 0;) {
    index[axis] = element % extents[axis];
    element /= extents[axis];
  }
  return index;
}

int64_t elementAt(llvm::ArrayRef<int64_t> index, llvm::ArrayRef<int64_t> extents) {
  int64_t element = 0;
  for (size_t axis = 0; axis < extents.size(); ++axis)
    element = element * extents[axis] + index[axis];
  return element;
}

std::optional<Extents> broadcastOf(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  Extents result(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t one = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t other = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (one != other && one != 1 && other != 1)
      return std::nullopt;
    result[result.size() - 1 - i] = one == 1 ? other : one;
  }
  return result;
}

BroadcastElements::BroadcastElements(llvm::ArrayRef<int64_t> result,
                                     llvm::ArrayRef<int64_t> operand)
    : extents(result.begin(), result.end()), strides(result.size(), 0) {
  const Extents own = rowMajorStrides(operand);
  for (size_t i = 0; i < operand.size(); ++i)
    if (operand[i] != 1)
      strides[result.size() - operand.size() + i] = own[i];
}

int64_t BroadcastElements::operator()(int64_t element) const {
  int64_t read = 0;
  for (size_t axis = extents.size(); axis-- > 0;) {
    read += element % extents[axis] * strides[axis];
    element /= extents[axis];
  }
  return read;
}

} // namespace kvopt::analysis
