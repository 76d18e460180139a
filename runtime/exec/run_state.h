// RunState: tensors of one graph during its execution, and the same for its subgraphs.
#pragma once

#include "runtime/exec/execution_plan.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/folded_constants.h"
#include "runtime/exec/input_binding.h"
#include "runtime/memory/buffer_pool.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/memory/scratch_stack.h"
#include "runtime/threads/thread_pool.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::runtime {

/// State shared by the graphs of one execution.
struct RunEnvironment {
  RunEnvironment(std::shared_ptr<Allocator> source, const SymbolValues& symbolValues,
                 ThreadPool& threadPool)
      : allocator(std::move(source)), symbols(symbolValues), threads(threadPool), pool(allocator),
        scratch(allocator) {}

  const std::shared_ptr<Allocator> allocator;
  const SymbolValues& symbols;
  ThreadPool& threads;
  bool timeOperators = false;
  /// Memory of tensors outside of arenas.
  BufferPool pool;
  ScratchStack scratch;
  RunStatistics statistics;

  llvm::Expected<Tensor> allocate(ir::ElementType element, llvm::ArrayRef<int64_t> shape);
  llvm::Expected<std::span<std::byte>> takeScratch(size_t bytes);
};

/// Tensors of one graph. Memory (an arena, constants) is kept between runs. Among the subgraphs of
/// one node, only the one that ran last keeps its arena.
struct RunState {
  /// Extents that depend on `openSymbols` are not known before the run: extents of the inputs of a
  /// loop's body differ between iterations.
  RunState(const ExecutionPlan& executionPlan, RunEnvironment& runEnvironment,
           const llvm::StringSet<>& openSymbols = {});

  const ExecutionPlan& plan;
  RunEnvironment& environment;

  /// For each slot; data is null, and extents are invalid, unless the tensor exists.
  std::vector<Tensor> tensors;
  /// For each slot: a contiguous copy of a strided input.
  std::vector<Tensor> packed;
  /// For each slot: whether the tensor exists.
  std::vector<bool> present;
  /// For each group: whether the caller allows the run to overwrite it.
  std::vector<bool> writable;
  /// For each dimension of the plan.
  std::vector<std::optional<int64_t>> extents;
  /// For each group: size in bytes and offset in the arena; -1 if not planned.
  std::vector<int64_t> offsets;
  std::shared_ptr<Buffer> arena;
  /// For each branch of the plan.
  std::vector<std::unique_ptr<RunState>> branches;
  const FoldedConstants* constants = nullptr;

  /// Sets the constants of this graph and its subgraphs, once. They must outlive the state.
  void takeConstants(const FoldedConstants& constants);
  /// Computes the sizes of planned groups in this run, and places them again if the current
  /// placement is too small, or has been far too large for some runs.
  llvm::Error placeIntermediates();
  /// Requires that inputs and captured tensors are present.
  llvm::Error runSteps();
  void release(unsigned group);
  /// Removes the tensors of this run.
  void clear();
  /// Releases the arena, including those of subgraphs.
  void dropMemory();
  /// Total size of the arenas of this graph and its subgraphs.
  int64_t arenaBytes() const;

private:
  llvm::Error measure();
  bool isTooSmall() const;
  bool isTooLarge() const;
  llvm::Error place(bool fromScratch);

  std::vector<bool> isOpen;          // for each dimension of the plan: never known before the run
  std::vector<int64_t> neededBytes;  // for each group, in this run; -1 if unknown
  std::vector<int64_t> plannedBytes; // for each group, in the current placement
  MemoryPlan placement;
  std::vector<unsigned> placedGroups;
  std::optional<uint64_t> measuredFor; // version of the symbols
  bool tooLarge = false;               // whether the placement is too large for the current sizes
  unsigned runsTooLarge = 0;           // number of consecutive runs
};

} // namespace kvopt::runtime
