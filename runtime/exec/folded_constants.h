// FoldedConstants: constants of a graph, including results that depend only on constants.
#pragma once

#include "runtime/exec/weight_forms.h"

namespace kvopt::runtime {

/// Constants of one plan and of the plans of its subgraphs. Immutable, so that any number of
/// executions may share it.
///
/// A step with constant operands is computed once, here. It is not computed at all if matrix
/// products read its operand instead (for example, a transposed weight is read by columns). Steps
/// whose results would exceed the memory limit, and those that fail, are executed in every run.
struct FoldedConstants {
  /// For each slot: initializers and computed constants; others have null data.
  std::vector<Tensor> tensors;
  /// For each step: whether runs skip it.
  std::vector<bool> isFolded;
  /// For each step: replacement of its kernel's weight operand; null if the kernel reads the
  /// operand.
  std::vector<std::shared_ptr<const ConstantWeights>> weights;
  /// For each branch of the plan.
  std::vector<std::unique_ptr<const FoldedConstants>> branches;
  /// Number of steps of this plan and its subgraphs that are folded, and of constant ones that are
  /// not.
  int64_t foldedNodes = 0;
  int64_t streamedNodes = 0;

  /// An error if an initializer that a run needs cannot be read.
  static llvm::Expected<std::unique_ptr<const FoldedConstants>>
  compute(const ExecutionPlan& plan, ConstantMemory& memory, ThreadPool& pool);
};

} // namespace kvopt::runtime
