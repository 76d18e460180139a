// ConstantContext: executes one node with constant operands in bounded memory.
#pragma once

#include "runtime/exec/execution_plan.h"
#include "runtime/memory/buffer.h"
#include "runtime/threads/thread_pool.h"

#include <atomic>
#include <mutex>

namespace kvopt::runtime {

/// Memory for computed constants, up to a limit. Any thread may allocate and free.
class ConstantMemory : public std::enable_shared_from_this<ConstantMemory> {
public:
  ConstantMemory(std::shared_ptr<Allocator> memorySource, int64_t mostBytes)
      : source(std::move(memorySource)), limit(mostBytes) {}

  struct Block {
    std::shared_ptr<const void> owner;
    std::byte* data = nullptr;
  };
  /// Uninitialized memory, aligned to bufferAlignment. An error if the limit would be exceeded or
  /// memory is short.
  llvm::Expected<Block> take(int64_t bytes);

  int64_t used() const { return inUse.load(std::memory_order_relaxed); }
  const std::shared_ptr<Allocator>& allocator() const { return source; }

private:
  const std::shared_ptr<Allocator> source;
  const int64_t limit;
  std::mutex allocating;
  std::atomic<int64_t> inUse{0};
};

/// Execution of one constant step. Its results become separate tensors or views of operands.
class ConstantContext final : public KernelContext {
public:
  /// `tensors` holds the step's operands by slot, and receives its results.
  ConstantContext(const ExecutionPlan& executedPlan, const ExecutionPlan::Step& runStep,
                  std::vector<Tensor>& tensors, ConstantMemory& memorySource, ThreadPool& pool)
      : KernelContext(*runStep.node), plan(executedPlan), step(runStep), values(tensors),
        memory(memorySource), workers(pool) {}

  /// Runs the kernel. After an error, no result exists.
  llvm::Error execute();

  const TensorView* input(unsigned index) const override;
  llvm::Expected<TensorView> output(unsigned result, ir::ElementType element,
                                    llvm::ArrayRef<int64_t> shape) override;
  llvm::Error outputView(unsigned result, unsigned operand, llvm::ArrayRef<int64_t> shape) override;
  llvm::Expected<TensorView> outputInPlace(unsigned result, unsigned operand) override;
  llvm::Expected<std::span<std::byte>> scratch(size_t bytes) override;
  void parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body) override {
    workers.parallelFor(count, body);
  }
  unsigned threads() const override { return workers.threads(); }
  void noteCacheWrite(int64_t) override {}
  Tensor share(unsigned index) const override { return values[step.operands[index]]; }
  llvm::Expected<Tensor> temporary(ir::ElementType element, llvm::ArrayRef<int64_t> shape) override;

private:
  llvm::Error checkResult(unsigned result, ir::ElementType element,
                          llvm::ArrayRef<int64_t> shape) const;

  const ExecutionPlan& plan;
  const ExecutionPlan::Step& step;
  std::vector<Tensor>& values;
  ConstantMemory& memory;
  ThreadPool& workers;
  std::vector<std::shared_ptr<const void>> scratchMemory;
};

} // namespace kvopt::runtime
