// Operators that read at indices given by an operand: Gather, GatherElements.
//
// Versions: Gather in every opset, GatherElements from 11.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/element_offsets.h"
#include "runtime/kernels/support/integer_input.h"

#include <cstring>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// y[o.., j.., i..] = x[o.., indices[j..], i..]
llvm::Error gather(KernelContext& context) {
  const TensorView& x = context.in(0);
  const TensorView& positions = context.in(1);
  llvm::Expected<unsigned> axis = axisOf(context, context.node().intAttr("axis", 0), x.rank());
  if (!axis)
    return axis.takeError();
  auto indices = integerListOf(context, 1);
  if (!indices)
    return indices.takeError();
  for (int64_t& index : *indices) {
    llvm::Expected<int64_t> checked = indexOf(context, index, x.shape[*axis]);
    if (!checked)
      return checked.takeError();
    index = *checked;
  }
  Extents shape(x.shape.begin(), x.shape.begin() + *axis);
  shape.append(positions.shape.begin(), positions.shape.end());
  shape.append(x.shape.begin() + *axis + 1, x.shape.end());
  llvm::Expected<TensorView> y = context.output(0, x.element, shape);
  if (!y)
    return y.takeError();
  if (y->elementCount() == 0)
    return llvm::Error::success();
  llvm::ArrayRef<int64_t> extents = x.shape;
  const int64_t outer = product(extents.take_front(*axis));
  const int64_t bytes = product(extents.drop_front(*axis + 1)) * *memoryWidth(x.element);
  std::byte* out = y->data;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t index : *indices) {
      std::memcpy(out, x.data + (o * x.shape[*axis] + index) * bytes, static_cast<size_t>(bytes));
      out += bytes;
    }
  return llvm::Error::success();
}

/// y[i, j, k] = x[i, indices[i, j, k], k] for axis 1
llvm::Error gatherElements(KernelContext& context) {
  const TensorView& x = context.in(0);
  const TensorView& positions = context.in(1);
  auto offsets = elementOffsets(context, x);
  if (!offsets)
    return offsets.takeError();
  llvm::Expected<TensorView> y = context.output(0, x.element, positions.shape);
  if (!y)
    return y.takeError();
  return dispatchWidth(context, x.element, [&](auto tag) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    for (size_t i = 0; i < offsets->size(); ++i)
      y->as<T>()[i] = x.as<T>()[(*offsets)[i]];
    return llvm::Error::success();
  });
}

} // namespace

void register_gather(KernelRegistry& registry) {
  registry.add("Gather", 1, gather);
  registry.add("GatherElements", 11, gatherElements);
}

} // namespace kvopt::kernels
