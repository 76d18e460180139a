// Constant tensors from which masks are computed: triangles, bands, ramps.
#pragma once

#include "ir/tensor.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace kvopt::analysis {

/// A constant tensor as a function of its index, exact at every index within its extents.
struct ConstantTable {
  enum class Form {
    Affine, ///< base + sum of steps[axis] * index[axis]
    Banded, ///< a function of index[columnAxis] - index[rowAxis]: `bands`
  };
  Form form = Form::Affine;
  double base = 0;
  llvm::SmallVector<int64_t, 4> steps;

  unsigned rowAxis = 0;
  unsigned columnAxis = 0;
  /// Value by difference of column and row: each band extends from `first` up to the next band's.
  struct Band {
    int64_t first;
    double value;
  };
  llvm::SmallVector<Band, 4> bands;
};

/// Recognizes a constant of any numeric or boolean type by reading all of it; nullopt if it has no
/// such form, more than three bands or more than 2^24 elements.
std::optional<ConstantTable> recognizeTable(const ir::TensorData& tensor);

} // namespace kvopt::analysis
