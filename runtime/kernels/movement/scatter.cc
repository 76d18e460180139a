// Operators that write at indices given by an operand:
//
//   ScatterElements   y = data, then y[i, indices[i,j,k], k] ∘= updates[i,j,k]   (axis 1)
//   ScatterND         y = data, then y[indices[i…, :], …] ∘= updates[i…, …]
//
// where a ∘= b stores b, or with reduction a + b, a · b, max or min. Without reduction, positions
// must be distinct; otherwise the last one wins. If the data may be overwritten, only the updates
// are written.
//
// Versions: from opset 11; reductions add and mul from 16, max and min from 18.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/element_offsets.h"
#include "runtime/kernels/support/integer_input.h"

#include <algorithm>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

enum class Reduction { None, Add, Multiply, Max, Min };

llvm::Expected<Reduction> reductionOf(KernelContext& context) {
  llvm::StringRef name = context.node().stringAttr("reduction", "none");
  if (name == "none")
    return Reduction::None;
  if (name == "add")
    return Reduction::Add;
  if (name == "mul")
    return Reduction::Multiply;
  if (name == "max" && context.opset() >= 18)
    return Reduction::Max;
  if (name == "min" && context.opset() >= 18)
    return Reduction::Min;
  return context.error(formatted("reduction '{}' is not known", name.str()));
}

template <class T> T reduced(Reduction reduction, T stored, T update) {
  const auto a = load(stored);
  const auto b = load(update);
  switch (reduction) {
  case Reduction::None:
    return update;
  case Reduction::Add:
    return store<T>(wrapping<T>(a, b, std::plus<>()));
  case Reduction::Multiply:
    return store<T>(wrapping<T>(a, b, std::multiplies<>()));
  case Reduction::Max:
    return b > a || b != b ? update : stored;
  case Reduction::Min:
    return b < a || b != b ? update : stored;
  }
  return update;
}

/// Combines the data at `offsets[i]` with run i of the updates; all runs have `run` elements.
/// Checks offsets before it writes.
llvm::Error scatter(KernelContext& context, llvm::ArrayRef<int64_t> offsets, int64_t run) {
  const TensorView& data = context.in(0);
  const TensorView& updates = context.in(2);
  if (updates.element != data.element)
    return context.error("data and updates have different element types");
  llvm::Expected<Reduction> reduction = reductionOf(context);
  if (!reduction)
    return reduction.takeError();
  llvm::Expected<TensorView> y = context.outputInPlace(0, 0);
  if (!y)
    return y.takeError();
  if (y->elementCount() == 0)
    return llvm::Error::success();
  if (context.isCallersMemory(0))
    context.noteCacheWrite(updates.byteSize());
  auto write = [&](auto tag, auto combine) -> llvm::Error {
    using T = typename decltype(tag)::Type;
    const T* from = updates.as<T>();
    for (int64_t offset : offsets)
      for (T *to = y->as<T>() + offset, *end = to + run; to != end; ++to)
        *to = combine(*to, *from++);
    return llvm::Error::success();
  };
  if (*reduction == Reduction::None)
    return dispatchWidth(context, data.element, [&](auto tag) {
      return write(tag, [](auto, auto update) { return update; });
    });
  return dispatch(NumericTypes(), context, data.element, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return write(tag, [&](T stored, T update) { return reduced<T>(*reduction, stored, update); });
  });
}

llvm::Error scatterElements(KernelContext& context) {
  if (context.in(1).shape != context.in(2).shape)
    return context.error("indices and updates differ in shape");
  auto offsets = elementOffsets(context, context.in(0));
  if (!offsets)
    return offsets.takeError();
  return scatter(context, *offsets, 1);
}

llvm::Error scatterNd(KernelContext& context) {
  const TensorView& data = context.in(0);
  const TensorView& indices = context.in(1);
  if (data.rank() == 0 || indices.rank() == 0)
    return context.error("a scalar operand");
  const int64_t depth = indices.shape.back();
  if (depth < 1 || depth > static_cast<int64_t>(data.rank()))
    return context.error(
        formatted("an index depth of {} does not fit a rank of {}", depth, data.rank()));
  llvm::ArrayRef<int64_t> shape = data.shape;
  llvm::ArrayRef<int64_t> indexed = shape.take_front(static_cast<size_t>(depth));
  llvm::ArrayRef<int64_t> rest = shape.drop_front(static_cast<size_t>(depth));
  Extents expected(indices.shape.begin(), indices.shape.end() - 1);
  expected.append(rest.begin(), rest.end());
  if (context.in(2).shape != expected)
    return context.error("updates have another shape than indices and data ask for");
  auto positions = integerListOf(context, 1);
  if (!positions)
    return positions.takeError();
  Extents offsets;
  for (size_t next = 0; next < positions->size();) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < indexed.size(); ++axis, ++next) {
      llvm::Expected<int64_t> position = indexOf(context, (*positions)[next], indexed[axis]);
      if (!position)
        return position.takeError();
      offset += *position * data.strides[axis];
    }
    offsets.push_back(offset);
  }
  return scatter(context, offsets, product(rest));
}

} // namespace

void register_scatter(KernelRegistry& registry) {
  registry.add("ScatterElements", 11, scatterElements);
  registry.add("ScatterND", 11, scatterNd);
}

} // namespace kvopt::kernels
