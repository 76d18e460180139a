// Shapes and elements of small tensors.
#include "passes/analysis/rotation/form_tensor.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {

void FormTensor::take(std::vector<PositionForm> elements) {
  numbers.clear();
  forms.clear();
  if (!llvm::all_of(elements, [](const PositionForm& form) { return form.asNumber(); })) {
    forms = std::move(elements);
    return;
  }
  for (const PositionForm& form : elements)
    numbers.push_back(*form.asNumber());
}

std::optional<int64_t> elementsOf(llvm::ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count))
      return std::nullopt;
  return count;
}

llvm::SmallVector<int64_t, 4> stridesOf(llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<int64_t, 4> strides(shape.size(), 1);
  for (size_t axis = shape.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

std::optional<llvm::SmallVector<int64_t, 4>> broadcastShape(llvm::ArrayRef<int64_t> a,
                                                            llvm::ArrayRef<int64_t> b) {
  llvm::SmallVector<int64_t, 4> shape(std::max(a.size(), b.size()), 1);
  for (llvm::ArrayRef<int64_t> each : {a, b})
    for (size_t i = 0; i < each.size(); ++i) {
      int64_t& extent = shape[shape.size() - each.size() + i];
      if (extent != 1 && each[i] != 1 && extent != each[i])
        return std::nullopt;
      if (extent == 1)
        extent = each[i];
    }
  const auto count = elementsOf(shape);
  if (!count || *count > mostForms)
    return std::nullopt;
  return shape;
}

std::vector<int64_t> broadcastIndices(llvm::ArrayRef<int64_t> from,
                                      llvm::ArrayRef<int64_t> result) {
  const llvm::SmallVector<int64_t, 4> own = stridesOf(from);
  llvm::SmallVector<int64_t, 4> steps(result.size(), 0);
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] != 1)
      steps[result.size() - from.size() + i] = own[i];
  const llvm::SmallVector<int64_t, 4> strides = stridesOf(result);
  std::vector<int64_t> indices(static_cast<size_t>(elementsOf(result).value_or(0)));
  for (size_t flat = 0; flat < indices.size(); ++flat)
    for (size_t axis = 0; axis < result.size(); ++axis)
      indices[flat] += static_cast<int64_t>(flat) / strides[axis] % result[axis] * steps[axis];
  return indices;
}

} // namespace kvopt::analysis
