// RunState: the tensors of one graph while it is executed, and the same for its subgraphs.
#pragma once

#include "runtime/buffer.h"
#include "runtime/execution_plan.h"
#include "runtime/executor.h"
#include "runtime/input_binding.h"
#include "runtime/memory_plan.h"
#include "runtime/thread_pool.h"

namespace kvopt {

/// What the graphs of one execution share.
struct RunEnvironment {
  std::shared_ptr<Allocator> allocator;
  ThreadPool* threads = nullptr;
  bool timeOperators = false;
  SymbolValues symbols;
  RunStatistics statistics;

  llvm::Expected<Tensor> allocate(ElementType element, llvm::ArrayRef<int64_t> shape);
};

/// The tensors of one graph. Memory (an arena, constants, scratch) stays from run to run; of the
/// subgraphs of one node only the one that ran last keeps its arena.
struct RunState {
  RunState(const ExecutionPlan& executionPlan, RunEnvironment& runEnvironment);

  const ExecutionPlan& plan;
  RunEnvironment& environment;

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
  /// Per branch of the plan.
  std::vector<std::unique_ptr<RunState>> branches;

  /// Of this graph and its subgraphs, once.
  llvm::Error loadConstants();
  /// Sizes of planned groups in this run, and a new placement when the current one is too small or
  /// far too large.
  llvm::Error placeIntermediates();
  /// Requires that inputs and captured tensors are present.
  llvm::Error runSteps();
  void release(unsigned group);
  /// Forgets the tensors of this run.
  void clear();
  /// Gives back the arena and scratch memory, of subgraphs too.
  void dropMemory();

private:
  llvm::Expected<std::vector<int64_t>> neededBytes() const;
  llvm::Error place(const std::vector<int64_t>& needed);

  std::vector<int64_t> plannedBytes; // per group, what the current placement provides
  MemoryPlan placement;
  std::vector<unsigned> placedGroups;
};

} // namespace kvopt
