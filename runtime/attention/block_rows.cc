// Scratch memory of operators over blocks.
#include "runtime/attention/block_rows.h"

#include "runtime/memory/buffer.h"

#include <new>

namespace kvopt::runtime {
using namespace simd;

llvm::Expected<TensorView> withContiguousRows(KernelContext& context, const TensorView& view) {
  if (view.shape.back() <= 1 || view.strides.back() == 1)
    return view;
  auto memory = context.scratch(static_cast<size_t>(view.byteSize()));
  if (!memory)
    return memory.takeError();
  TensorView packed = TensorView::contiguous(view.element, view.shape, memory->data());
  copyElements(view, packed);
  return packed;
}

RowStrides rowStridesOf(const TensorView& view) {
  return {view.strides[0], view.strides[1], view.strides[2]};
}

llvm::Expected<std::span<KeyValueSegment>> scratchSegments(KernelContext& context, size_t count) {
  auto memory = context.scratch(count * sizeof(KeyValueSegment));
  if (!memory)
    return memory.takeError();
  return std::span(new (memory->data()) KeyValueSegment[count], count);
}

} // namespace kvopt::runtime
