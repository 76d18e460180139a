// FormTensor: a tensor of position forms, at one small instance of a model's extents.
#pragma once

#include "passes/analysis/rotation/position_form.h"

#include <vector>

namespace kvopt::analysis {

/// Elements in row-major order: numbers, or forms if one of them is not a number.
struct FormTensor {
  llvm::SmallVector<int64_t, 4> shape;
  std::vector<double> numbers;
  std::vector<PositionForm> forms;

  bool isNumeric() const { return forms.empty(); }
  int64_t count() const {
    return static_cast<int64_t>(isNumeric() ? numbers.size() : forms.size());
  }
  PositionForm at(int64_t index) const {
    return isNumeric() ? PositionForm::number(numbers[static_cast<size_t>(index)])
                       : forms[static_cast<size_t>(index)];
  }
  /// Stores the forms, as numbers if all of them are.
  void take(std::vector<PositionForm> elements);
};

/// Maximum number of elements of a computed tensor.
inline constexpr int64_t mostForms = 1 << 20;

/// The number of elements; nullopt if an extent is negative or the number is too large.
std::optional<int64_t> elementsOf(llvm::ArrayRef<int64_t> shape);
/// Distance between consecutive entries of each axis in row-major order, in elements.
llvm::SmallVector<int64_t, 4> stridesOf(llvm::ArrayRef<int64_t> shape);
/// The broadcast shape of an elementwise operator; nullopt if the shapes do not broadcast, or if
/// there are more elements than mostForms.
std::optional<llvm::SmallVector<int64_t, 4>> broadcastShape(llvm::ArrayRef<int64_t> a,
                                                            llvm::ArrayRef<int64_t> b);
/// For each element of `result`, the element of a tensor of shape `from` that is broadcast to it.
std::vector<int64_t> broadcastIndices(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> result);

} // namespace kvopt::analysis
