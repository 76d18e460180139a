// FoldedConstants: the constants of a graph, with what the graph computes from constants alone.
#pragma once

#include "runtime/exec/weight_forms.h"

namespace kvopt::runtime {

/// The constants of one plan and of the plans of its subgraphs. Immutable, so that any number of
/// executions may share it.
///
/// A step whose operands are all constants is computed once, here, and not at all where matrix
/// products read its operand in its place (a transposed weight, say, is the weight read by
/// columns). Steps whose results would exceed the memory limit, and those that fail, are left to
/// every run.
struct FoldedConstants {
  /// Per slot: initializers and computed constants; data is null for all others.
  std::vector<Tensor> tensors;
  /// Per step: no run executes it.
  std::vector<bool> isFolded;
  /// Per step: what its kernel reads as its weight operand; null where that is the operand itself.
  std::vector<std::shared_ptr<const ConstantWeights>> weights;
  /// Per branch of the plan.
  std::vector<std::unique_ptr<const FoldedConstants>> branches;
  /// Steps of this plan and its subgraphs that are folded, and constant ones that are not.
  int64_t foldedNodes = 0;
  int64_t streamedNodes = 0;

  /// An error when an initializer that a run reads cannot be read.
  static llvm::Expected<std::unique_ptr<const FoldedConstants>>
  compute(const ExecutionPlan& plan, ConstantMemory& memory, ThreadPool& pool);
};

} // namespace kvopt::runtime
