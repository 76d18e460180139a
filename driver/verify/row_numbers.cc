// Access by element type.
#include "driver/verify/row_numbers.h"

#include "support/half.h"

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

void forEachElement(const TensorView& view,
                    llvm::function_ref<void(int64_t index, int64_t offset)> call) {
  Extents at(view.rank(), 0);
  for (int64_t index = 0, count = view.elementCount(); index < count; ++index) {
    int64_t offset = 0;
    for (unsigned axis = 0; axis < view.rank(); ++axis)
      offset += at[axis] * view.strides[axis];
    call(index, offset);
    for (unsigned axis = view.rank(); axis-- > 0 && ++at[axis] == view.shape[axis];)
      at[axis] = 0;
  }
}

double numberAt(const TensorView& view, int64_t offset) {
  switch (view.element) {
  case ElementType::Double:
    return view.as<double>()[offset];
  case ElementType::Float16:
    return static_cast<double>(f16ToFloat(view.as<uint16_t>()[offset]));
  case ElementType::BFloat16:
    return static_cast<double>(bf16ToFloat(view.as<uint16_t>()[offset]));
  default:
    return static_cast<double>(view.as<float>()[offset]);
  }
}

void setNumber(const TensorView& view, int64_t offset, double number) {
  switch (view.element) {
  case ElementType::Double:
    view.as<double>()[offset] = number;
    break;
  case ElementType::Float16:
    view.as<uint16_t>()[offset] = floatToF16(static_cast<float>(number));
    break;
  case ElementType::BFloat16:
    view.as<uint16_t>()[offset] = floatToBf16(static_cast<float>(number));
    break;
  default:
    view.as<float>()[offset] = static_cast<float>(number);
  }
}

bool hasNumbers(const TensorView& view) {
  return view.element == ElementType::Float || view.element == ElementType::Double ||
         view.element == ElementType::Float16 || view.element == ElementType::BFloat16;
}

double fillingNumber(int64_t index) {
  constexpr int64_t period = 7;
  const auto number = static_cast<double>(1 + index * 3 % period) / 2;
  return index % 2 == 0 ? number : -number;
}

} // namespace kvopt::driver
