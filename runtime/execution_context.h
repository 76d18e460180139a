// ExecutionContext: the KernelContext of the executor, and the state of one run that it works on.
#pragma once

#include "runtime/buffer.h"
#include "runtime/execution_plan.h"
#include "runtime/executor.h"
#include "runtime/thread_pool.h"

namespace kvopt {

/// The tensors of one run.
struct RunState {
  const ExecutionPlan* plan = nullptr;
  std::shared_ptr<Allocator> allocator;
  ThreadPool* threads = nullptr;
  RunStatistics statistics;

  /// Per slot; data is null until the tensor exists.
  std::vector<Tensor> tensors;
  /// Per slot: a contiguous copy of a strided input.
  std::vector<Tensor> packed;
  /// Per slot: the tensor exists.
  std::vector<bool> present;
  /// Per group: the caller allows the run to overwrite it.
  std::vector<bool> writable;
  /// Per dimension of the plan.
  std::vector<std::optional<int64_t>> extents;
  /// Per group: bytes and place in the arena; -1 when not planned.
  std::vector<int64_t> offsets;
  std::shared_ptr<Buffer> arena;
  /// Scratch memory, kept from step to step.
  std::vector<std::shared_ptr<Buffer>> scratch;

  llvm::Expected<Tensor> allocate(ElementType element, llvm::ArrayRef<int64_t> shape);
  void release(unsigned group);
};

/// One execution of one step.
class ExecutionContext final : public KernelContext {
public:
  ExecutionContext(RunState& runState, const ExecutionPlan::Step& runStep)
      : KernelContext(*runStep.node), state(runState), step(runStep) {}

  /// Makes the operands ready, runs the kernel, and checks that every wanted result is there.
  llvm::Error execute();

  const TensorView* input(unsigned index) const override;
  llvm::Expected<TensorView> output(unsigned result, ElementType element,
                                    llvm::ArrayRef<int64_t> shape) override;
  llvm::Error outputView(unsigned result, unsigned operand, llvm::ArrayRef<int64_t> shape) override;
  llvm::Expected<TensorView> outputInPlace(unsigned result, unsigned operand) override;
  llvm::Expected<std::span<std::byte>> scratch(size_t bytes) override;
  void parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body) override;
  unsigned threads() const override { return state.threads->threads(); }
  void noteCacheWrite(int64_t bytes) override { state.statistics.cacheBytesWritten += bytes; }

private:
  llvm::Error packOperands();
  /// An error unless the result may be given now with this type.
  llvm::Error checkResult(unsigned result, ElementType element, llvm::ArrayRef<int64_t> shape);
  llvm::Error internalError(const std::string& message) const;
  const Tensor& operandTensor(unsigned index) const;

  RunState& state;
  const ExecutionPlan::Step& step;
  size_t scratchUsed = 0;
};

} // namespace kvopt
