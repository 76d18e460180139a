// TensorView: sizes and strides.
#include "runtime/memory/tensor_view.h"

namespace kvopt::runtime {
using namespace ir;

Extents contiguousStrides(llvm::ArrayRef<int64_t> shape) {
  Extents strides(shape.size(), 1);
  for (size_t axis = shape.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

TensorView TensorView::contiguous(ElementType element, llvm::ArrayRef<int64_t> shape,
                                  std::byte* data) {
  TensorView view;
  view.element = element;
  view.shape.assign(shape.begin(), shape.end());
  view.strides = contiguousStrides(shape);
  view.data = data;
  return view;
}

int64_t TensorView::elementCount() const {
  for (int64_t extent : shape)
    if (extent == 0)
      return 0;
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

std::optional<unsigned> memoryWidth(ElementType type) {
  const std::optional<unsigned> bits = bitWidth(type);
  return bits ? std::optional(*bits < 8 ? 1 : *bits / 8) : std::nullopt;
}

int64_t TensorView::byteSize() const {
  std::optional<unsigned> width = memoryWidth(element);
  assert(width && "views have elements of whole bytes");
  return elementCount() * int64_t{*width};
}

bool TensorView::isContiguous() const {
  assert(strides.size() == shape.size());
  if (elementCount() == 0)
    return true;
  int64_t expected = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] == 1)
      continue;
    if (strides[axis] != expected)
      return false;
    expected *= shape[axis];
  }
  return true;
}

} // namespace kvopt::runtime
