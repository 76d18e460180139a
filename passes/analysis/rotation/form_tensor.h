// FormTensor: a tensor of position forms, at one small instance of a model's extents.
#pragma once

#include "passes/analysis/rotation/position_form.h"

#include <vector>

namespace kvopt::analysis {

/// The elements in row-major order: numbers, or forms where one of them is not a number.
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
  /// Gives the tensor forms, as numbers where all of them are.
  void take(std::vector<PositionForm> elements);
};

/// The most elements of a tensor that is computed.
inline constexpr int64_t mostForms = 1 << 20;

/// The number of elements; nullopt where an extent is negative or there are more than fit.
std::optional<int64_t> elementsOf(llvm::ArrayRef<int64_t> shape);
/// Elements from one entry of each axis to the next, in row-major order.
llvm::SmallVector<int64_t, 4> stridesOf(llvm::ArrayRef<int64_t> shape);
/// The shape of two operands of an elementwise operator; nullopt where they do not fit, and where
/// there are more elements than mostForms.
std::optional<llvm::SmallVector<int64_t, 4>> broadcastShape(llvm::ArrayRef<int64_t> a,
                                                            llvm::ArrayRef<int64_t> b);
/// For each element of `result` the element of a tensor of shape `from` that is broadcast to it.
std::vector<int64_t> broadcastIndices(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> result);

} // namespace kvopt::analysis
