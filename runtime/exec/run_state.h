// RunState: the tensors of one graph while it is executed, and the same for its subgraphs.
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

/// What the graphs of one execution share.
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

/// The tensors of one graph. Memory (an arena, constants) stays from run to run; of the subgraphs
/// of one node only the one that ran last keeps its arena.
struct RunState {
  /// Extents that depend on one of `openSymbols` are never known before they are seen: those of the
  /// inputs of a loop's body have other values in every iteration.
  RunState(const ExecutionPlan& executionPlan, RunEnvironment& runEnvironment,
           const llvm::StringSet<>& openSymbols = {});

  const ExecutionPlan& plan;
  RunEnvironment& environment;

  /// Per slot; data is null, and extents are meaningless, unless the tensor exists.
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
  /// Per branch of the plan.
  std::vector<std::unique_ptr<RunState>> branches;
  const FoldedConstants* constants = nullptr;

  /// Of this graph and its subgraphs, once; they must outlive the state.
  void takeConstants(const FoldedConstants& constants);
  /// Sizes of planned groups in this run, and a new placement when the current one is too small or
  /// has been far too large for some runs.
  llvm::Error placeIntermediates();
  /// Requires that inputs and captured tensors are present.
  llvm::Error runSteps();
  void release(unsigned group);
  /// Forgets the tensors of this run.
  void clear();
  /// Gives back the arena, of subgraphs too.
  void dropMemory();
  /// The arenas of this graph and its subgraphs.
  int64_t arenaBytes() const;

private:
  llvm::Error measure();
  bool isTooSmall() const;
  bool isTooLarge() const;
  llvm::Error place(bool fromScratch);

  std::vector<bool> isOpen;          // per dimension of the plan: never known beforehand
  std::vector<int64_t> neededBytes;  // per group, in this run; -1 when not known
  std::vector<int64_t> plannedBytes; // per group, what the current placement provides
  MemoryPlan placement;
  std::vector<unsigned> placedGroups;
  std::optional<uint64_t> measuredFor; // version of the symbols
  bool tooLarge = false;               // the placement is, for the current sizes
  unsigned runsTooLarge = 0;           // one after the other
};

} // namespace kvopt::runtime
