// Reading and checking of axes, shapes and indices.
#include "runtime/kernels/support/integer_input.h"

#include "runtime/kernels/support/element_dispatch.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// Copies all elements to `values`, which has room for them.
llvm::Error copyIntegers(KernelContext& context, unsigned operand, int64_t* values) {
  const TensorView& view = context.in(operand);
  return dispatch(IntegerTypes(), context, view.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    const T* data = view.as<T>();
    const int64_t count = view.elementCount();
    for (int64_t i = 0; i < count; ++i) {
      if (std::is_same_v<T, uint64_t> && data[i] > static_cast<T>(INT64_MAX))
        return context.error(formatted("operand {}: {} is too large", operand, data[i]));
      values[i] = static_cast<int64_t>(data[i]);
    }
    return llvm::Error::success();
  });
}

} // namespace

llvm::Expected<Extents> integersOf(KernelContext& context, unsigned operand) {
  Extents values(static_cast<size_t>(context.in(operand).elementCount()));
  if (llvm::Error error = copyIntegers(context, operand, values.data()))
    return error;
  return values;
}

llvm::Expected<IntegerList> scratchIntegers(KernelContext& context, size_t count) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, sizeof(int64_t), &bytes))
    return context.error("a working copy does not fit in the address space");
  auto memory = context.scratch(bytes);
  if (!memory)
    return memory.takeError();
  return IntegerList(reinterpret_cast<int64_t*>(memory->data()), count);
}

llvm::Expected<IntegerList> integerListOf(KernelContext& context, unsigned operand) {
  auto values = scratchIntegers(context, static_cast<size_t>(context.in(operand).elementCount()));
  if (!values)
    return values;
  if (llvm::Error error = copyIntegers(context, operand, values->data()))
    return error;
  return values;
}

llvm::Expected<int64_t> integerOf(KernelContext& context, unsigned operand) {
  if (context.in(operand).elementCount() != 1)
    return context.error(formatted("operand {} must hold one integer", operand));
  llvm::Expected<Extents> values = integersOf(context, operand);
  if (!values)
    return values.takeError();
  return values->front();
}

llvm::Expected<unsigned> axisOf(KernelContext& context, int64_t axis, unsigned rank) {
  if (std::optional<unsigned> normalized = normalizedAxis(axis, rank))
    return *normalized;
  return context.error(formatted("axis {} is out of range for rank {}", axis, rank));
}

llvm::Expected<llvm::SmallVector<unsigned, 6>> axesOf(KernelContext& context,
                                                      llvm::ArrayRef<int64_t> axes, unsigned rank) {
  llvm::SmallVector<unsigned, 6> result;
  llvm::SmallVector<bool, 6> seen(rank, false);
  for (int64_t axis : axes) {
    llvm::Expected<unsigned> normalized = axisOf(context, axis, rank);
    if (!normalized)
      return normalized.takeError();
    if (seen[*normalized])
      return context.error(formatted("axis {} is named twice", axis));
    seen[*normalized] = true;
    result.push_back(*normalized);
  }
  return result;
}

llvm::Expected<int64_t> indexOf(KernelContext& context, int64_t index, int64_t extent) {
  if (index < -extent || index >= extent)
    return context.error(formatted("index {} is out of range for extent {}", index, extent));
  return index < 0 ? index + extent : index;
}

llvm::Expected<int64_t> countOf(KernelContext& context, llvm::ArrayRef<int64_t> shape) {
  llvm::Expected<int64_t> count = checkedElementCount(shape);
  if (!count)
    return context.error(llvm::toString(count.takeError()));
  return *count;
}

int64_t product(llvm::ArrayRef<int64_t> extents) {
  uint64_t count = 1;
  for (int64_t extent : extents)
    count *= static_cast<uint64_t>(extent);
  return static_cast<int64_t>(count);
}

} // namespace kvopt::kernels
