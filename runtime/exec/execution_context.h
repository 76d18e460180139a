// ExecutionContext: the KernelContext of the executor.
#pragma once

#include "runtime/exec/run_state.h"

namespace kvopt::runtime {

/// Execution of one step.
class ExecutionContext final : public KernelContext {
public:
  /// `constantWeights` replaces the kernel's weight operand; null if the kernel reads the operand.
  ExecutionContext(RunState& runState, const ExecutionPlan::Step& runStep,
                   const ConstantWeights* constantWeights)
      : KernelContext(*runStep.node), state(runState), step(runStep),
        operandWeights(constantWeights) {}

  /// Prepares the operands, runs the kernel, and checks that every requested result exists.
  llvm::Error execute();

  const TensorView* input(unsigned index) const override;
  const ConstantWeights* weights(unsigned index) const override {
    return operandWeights && index == *step.kernel->weightOperand ? operandWeights : nullptr;
  }
  llvm::Expected<TensorView> output(unsigned result, ir::ElementType element,
                                    llvm::ArrayRef<int64_t> shape) override;
  llvm::Error outputView(unsigned result, unsigned operand, llvm::ArrayRef<int64_t> shape) override;
  llvm::Expected<TensorView> outputInPlace(unsigned result, unsigned operand) override;
  llvm::Expected<std::span<std::byte>> scratch(size_t bytes) override;
  void parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body) override;
  unsigned threads() const override { return state.environment.threads.threads(); }
  bool isCallersMemory(unsigned operand) const override;
  void noteCacheWrite(int64_t bytes) override {
    state.environment.statistics.cacheBytesWritten += bytes;
  }
  llvm::Error runBranch(llvm::StringRef attribute) override;
  llvm::Expected<std::vector<Tensor>> runBody(llvm::StringRef attribute,
                                              std::vector<Tensor> inputs) override;
  Tensor share(unsigned index) const override { return operandTensor(index); }
  llvm::Expected<Tensor> temporary(ir::ElementType element, llvm::ArrayRef<int64_t> shape) override;

private:
  llvm::Error packOperands();
  llvm::Error enter(const ExecutionPlan::Branch& branch, RunState& inner);
  llvm::Error enterBody(const ir::Graph& body, const ExecutionPlan::Branch& branch, RunState& inner,
                        std::vector<Tensor> inputs);
  llvm::Error takeResults(RunState& inner);
  /// An error unless the kernel may now return the result with this type.
  llvm::Error checkResult(unsigned result, ir::ElementType element, llvm::ArrayRef<int64_t> shape);
  llvm::Error internalError(const std::string& message) const;
  const Tensor& operandTensor(unsigned index) const;

  RunState& state;
  const ExecutionPlan::Step& step;
  const ConstantWeights* operandWeights;
  bool hasRunBody = false;
};

} // namespace kvopt::runtime
