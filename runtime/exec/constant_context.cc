// Results and working memory of constant nodes.
#include "runtime/exec/constant_context.h"

#include "support/diagnostic.h"
#include "support/format.h"

namespace kvopt::runtime {
using namespace ir;

llvm::Expected<ConstantMemory::Block> ConstantMemory::take(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(allocating);
  if (bytes > limit || used() > limit - bytes)
    return ioError("constants of {} bytes exceed the limit of {}", bytes, limit);
  llvm::Expected<std::shared_ptr<Buffer>> buffer =
      Buffer::create(source, static_cast<size_t>(bytes));
  if (!buffer)
    return buffer.takeError();
  inUse.fetch_add(bytes, std::memory_order_relaxed);
  // Constants, and therefore their memory count, may outlive the executor that computed them.
  std::shared_ptr<const void> owner(
      (*buffer)->data(), [held = *buffer, counter = shared_from_this(), bytes](const void*) {
        counter->inUse.fetch_sub(bytes, std::memory_order_relaxed);
      });
  return Block{std::move(owner), (*buffer)->data()};
}

llvm::Error ConstantContext::execute() {
  llvm::Error failure = step.kernel->execute(*this);
  for (unsigned slot : step.results)
    if (!failure && slot != ExecutionPlan::none && !values[slot].view.data)
      failure = error("internal error: the kernel did not produce a result");
  if (failure)
    for (unsigned slot : step.results)
      if (slot != ExecutionPlan::none)
        values[slot] = Tensor();
  return failure;
}

const TensorView* ConstantContext::input(unsigned index) const {
  if (index >= step.operands.size() || step.operands[index] == ExecutionPlan::none)
    return nullptr;
  return &values[step.operands[index]].view;
}

llvm::Error ConstantContext::checkResult(unsigned result, ElementType element,
                                         llvm::ArrayRef<int64_t> shape) const {
  assert(wants(result) && "only wanted results are given");
  const TensorType& type = plan.slots[step.results[result]].value->type();
  bool isAsDeclared = type.elementType() == ElementType::Undefined || type.elementType() == element;
  isAsDeclared &= !type.hasRank() || type.rank() == shape.size();
  for (unsigned axis = 0; isAsDeclared && type.hasRank() && axis < shape.size(); ++axis) {
    const std::optional<int64_t> extent = type.shape()[axis].value();
    isAsDeclared = !extent || *extent == shape[axis];
  }
  if (isAsDeclared)
    return llvm::Error::success();
  return error(formatted("internal error: result {} is not of the inferred type", result));
}

llvm::Expected<Tensor> ConstantContext::temporary(ElementType element,
                                                  llvm::ArrayRef<int64_t> shape) {
  llvm::Expected<int64_t> bytes = checkedTensorBytes(element, shape);
  if (!bytes)
    return bytes.takeError();
  llvm::Expected<ConstantMemory::Block> block = memory.take(*bytes);
  if (!block)
    return block.takeError();
  return Tensor{std::move(block->owner), TensorView::contiguous(element, shape, block->data)};
}

llvm::Expected<TensorView> ConstantContext::output(unsigned result, ElementType element,
                                                   llvm::ArrayRef<int64_t> shape) {
  if (!wants(result))
    return scratchTensor(element, shape);
  if (llvm::Error error = checkResult(result, element, shape))
    return error;
  llvm::Expected<Tensor> tensor = temporary(element, shape);
  if (!tensor)
    return tensor.takeError();
  TensorView view = tensor->view;
  values[step.results[result]] = std::move(*tensor);
  return view;
}

llvm::Error ConstantContext::outputView(unsigned result, unsigned operand,
                                        llvm::ArrayRef<int64_t> shape) {
  if (!wants(result))
    return llvm::Error::success();
  const Tensor& source = values[step.operands[operand]];
  if (llvm::Error error = checkResult(result, source.view.element, shape))
    return error;
  llvm::Expected<int64_t> count = checkedElementCount(shape);
  if (!count)
    return count.takeError();
  if (*count != source.view.elementCount())
    return error(formatted("{} elements cannot take another shape of {}",
                           source.view.elementCount(), *count));
  const TensorView view = TensorView::contiguous(source.view.element, shape, source.view.data);
  values[step.results[result]] = Tensor{source.owner, view};
  return llvm::Error::success();
}

llvm::Expected<TensorView> ConstantContext::outputInPlace(unsigned result, unsigned operand) {
  const TensorView source = values[step.operands[operand]].view;
  llvm::Expected<TensorView> copy = output(result, source.element, source.shape);
  if (copy)
    copyElements(source, *copy);
  return copy;
}

llvm::Expected<std::span<std::byte>> ConstantContext::scratch(size_t bytes) {
  if (bytes > static_cast<size_t>(INT64_MAX))
    return error("a working copy does not fit in the address space");
  llvm::Expected<ConstantMemory::Block> block = memory.take(static_cast<int64_t>(bytes));
  if (!block)
    return block.takeError();
  scratchMemory.push_back(std::move(block->owner));
  return std::span<std::byte>(block->data, bytes);
}

} // namespace kvopt::runtime
