// Strided views of heads and copies of rows.
#include "runtime/attention/attention_heads.h"

#include "runtime/kernels/support/integer_input.h"
#include "support/format.h"

#include <cstring>

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

namespace {

/// Calls `row(position)` with the index of every row of [B,H,S,D].
template <class Row> void forEachRow(const TensorView& tensor, Row row) {
  assert(tensor.rank() == 4);
  if (tensor.elementCount() == 0)
    return;
  for (int64_t batch = 0; batch < tensor.shape[0]; ++batch)
    for (int64_t head = 0; head < tensor.shape[1]; ++head)
      for (int64_t s = 0; s < tensor.shape[2]; ++s)
        row(batch, head, s);
}

std::byte* rowAt(const TensorView& tensor, int64_t batch, int64_t head, int64_t row) {
  assert(tensor.shape[3] <= 1 || tensor.strides[3] == 1);
  int64_t offset = batch * tensor.strides[0] + head * tensor.strides[1] + row * tensor.strides[2];
  return tensor.data + offset * *byteWidth(tensor.element);
}

size_t rowBytes(const TensorView& tensor) {
  return static_cast<size_t>(tensor.shape[3] * *byteWidth(tensor.element));
}

} // namespace

TensorView viewOfHeads(const TensorView& tensor, int64_t heads) {
  assert(tensor.rank() == 3 && heads > 0 && tensor.shape[2] % heads == 0);
  const int64_t width = tensor.shape[2] / heads;
  TensorView split = tensor;
  split.shape = {tensor.shape[0], heads, tensor.shape[1], width};
  split.strides = {tensor.strides[0], width * tensor.strides[2], tensor.strides[1],
                   tensor.strides[2]};
  return split;
}

llvm::Expected<TensorView> headsOf(const KernelContext& context, const TensorView& tensor,
                                   int64_t heads, llvm::StringRef what) {
  if (tensor.rank() == 4)
    return tensor;
  if (tensor.rank() != 3)
    return context.error(
        formatted("{} of rank {}, which is neither 3 nor 4", what.str(), tensor.rank()));
  if (heads <= 0 || tensor.shape[2] % heads != 0)
    return context.error(formatted("the last extent {} of {} does not split into {} heads",
                                   tensor.shape[2], what.str(), heads));
  return viewOfHeads(tensor, heads);
}

TensorView slicedAxis(const TensorView& tensor, unsigned axis, int64_t first, int64_t count) {
  assert(axis < tensor.rank() && first >= 0 && count >= 0 && first + count <= tensor.shape[axis]);
  TensorView slice = tensor;
  slice.shape[axis] = count;
  if (tensor.elementCount() != 0)
    slice.data += first * tensor.strides[axis] * *byteWidth(tensor.element);
  return slice;
}

void copyRows(const TensorView& from, const TensorView& to) {
  assert(from.shape == to.shape && from.element == to.element);
  forEachRow(to, [&](int64_t batch, int64_t head, int64_t row) {
    std::memcpy(rowAt(to, batch, head, row), rowAt(from, batch, head, row), rowBytes(to));
  });
}

void clearRows(const TensorView& to) {
  forEachRow(to, [&](int64_t batch, int64_t head, int64_t row) {
    std::memset(rowAt(to, batch, head, row), 0, rowBytes(to));
  });
}

llvm::Expected<TensorView> scratchTensor(KernelContext& context, ElementType element,
                                         llvm::ArrayRef<int64_t> shape) {
  Extents extents(shape.begin(), shape.end());
  extents.push_back(*byteWidth(element));
  auto bytes = countOf(context, extents);
  if (!bytes)
    return bytes.takeError();
  auto memory = context.scratch(static_cast<size_t>(*bytes));
  if (!memory)
    return memory.takeError();
  return TensorView::contiguous(element, shape, memory->data());
}

llvm::Expected<TensorView> outputOrScratch(KernelContext& context, unsigned result,
                                           ElementType element, llvm::ArrayRef<int64_t> shape) {
  if (context.wants(result))
    return context.output(result, element, shape);
  return scratchTensor(context, element, shape);
}

llvm::Expected<TensorView> presentStorage(KernelContext& context, unsigned result,
                                          unsigned operand) {
  if (context.wants(result))
    return context.outputInPlace(result, operand);
  const TensorView& past = context.in(operand);
  auto memory = context.scratch(static_cast<size_t>(past.byteSize()));
  if (!memory)
    return memory.takeError();
  if (!memory->empty())
    std::memcpy(memory->data(), past.data, memory->size());
  return TensorView::contiguous(past.element, past.shape, memory->data());
}

llvm::Expected<TensorView> presentOf(KernelContext& context, unsigned result,
                                     const TensorView* past, const TensorView& fresh) {
  if (!past && !context.wants(result))
    return fresh;
  const Extents& shape = fresh.shape;
  int64_t pastRows = 0;
  if (past) {
    if (past->rank() != 4 || past->shape[0] != shape[0] || past->shape[1] != shape[1] ||
        past->shape[3] != shape[3])
      return context.error("a past must be [B,G,P,D] with the batch size, heads and width of the "
                           "new rows");
    if (past->element != fresh.element)
      return context.error("a past has another element type than the new rows");
    pastRows = past->shape[2];
  }
  int64_t rows = 0;
  if (__builtin_add_overflow(pastRows, shape[2], &rows))
    return context.error("the present is too large");
  auto present =
      outputOrScratch(context, result, fresh.element, {shape[0], shape[1], rows, shape[3]});
  if (!present)
    return present;
  if (past)
    copyRows(*past, slicedAxis(*present, 2, 0, pastRows));
  copyRows(fresh, slicedAxis(*present, 2, pastRows, shape[2]));
  return present;
}

} // namespace kvopt::runtime
