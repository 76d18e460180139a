// Repeated numbers by element type.
#include "runtime/cache/repeated_numbers.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

template <class T> void repeat(const TensorView& view, llvm::ArrayRef<double> numbers) {
  for (int64_t i = 0, count = view.elementCount(); i < count; ++i)
    view.as<T>()[i] = static_cast<T>(numbers[static_cast<size_t>(i) % numbers.size()]);
}

} // namespace

void fillRepeatedly(const TensorView& view, llvm::ArrayRef<double> numbers) {
  switch (view.element) {
  case ElementType::Int64:
    return repeat<int64_t>(view, numbers);
  case ElementType::Int32:
    return repeat<int32_t>(view, numbers);
  case ElementType::Float:
    return repeat<float>(view, numbers);
  case ElementType::Double:
    return repeat<double>(view, numbers);
  case ElementType::Bool:
    return repeat<bool>(view, numbers);
  default:
    break;
  }
}

} // namespace kvopt::runtime
