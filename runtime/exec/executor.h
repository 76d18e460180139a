// Executor: runs a model's main graph on concrete inputs.
#pragma once

#include "ir/model.h"
#include "runtime/exec/kernel.h"
#include "runtime/memory/buffer.h"
#include "runtime/threads/thread_pool.h"

#include "llvm/ADT/StringMap.h"

#include <memory>
#include <vector>

namespace kvopt::runtime {

struct ExecutorOptions {
  /// Of a pool of the executor's own: the caller and its helpers; 0 stands for usableCores().
  unsigned threads = 0;
  /// A pool to use instead. Executors that run at the same time should share one, so that the
  /// machine is not asked to run more threads than it has cores.
  std::shared_ptr<ThreadPool> pool;
  /// One of the executor's own when null.
  std::shared_ptr<Allocator> allocator;
  /// Measure the time each operator takes.
  bool timeOperators = false;
  /// The most bytes that constants computed from other constants may take; nodes whose results
  /// would exceed it are computed in every run. -1 stands for a quarter of the machine's memory.
  int64_t foldedConstantsLimit = -1;
  /// An executor of the same model with the same kernels, whose constants are used; null: the new
  /// one computes its own.
  const class Executor* constantsOf = nullptr;
};

/// An input of one run. The memory stays the caller's and must live until the run returns.
struct NamedView {
  llvm::StringRef name;
  TensorView view;
};

/// "The buffer given as `input` is to hold `output` after the run." The graph may overwrite the
/// buffer while it runs; where it does not, the output is copied there at the end.
struct Binding {
  llvm::StringRef input;
  llvm::StringRef output;
};

/// What one run did. Memory counts what the run uses besides inputs, constants and bound buffers.
struct RunStatistics {
  /// The arena: intermediate tensors whose sizes are known before the run.
  int64_t arenaBytes = 0;
  /// The least any placement of the planned tensors could need.
  int64_t arenaLowerBound = 0;
  /// The most scratch memory that one operator asked for.
  int64_t scratchBytes = 0;
  /// The most at one instant of all tensors that have memory of their own: outputs, and those whose
  /// size is known only when they are computed.
  int64_t dynamicBytes = 0;
  /// What is kept for the next run: arena, scratch, and free memory of former tensors.
  int64_t reservedBytes = 0;
  /// Memory requested from the allocator during the run.
  int64_t bytesAllocated = 0;
  int64_t allocations = 0;
  /// Bytes copied because an operand could not be overwritten in place, and because a bound output
  /// was computed elsewhere.
  int64_t inPlaceBytesCopied = 0;
  /// Bytes of strided inputs copied for kernels that want contiguous ones.
  int64_t packedBytes = 0;
  int64_t cacheBytesWritten = 0;
  /// Nodes whose operands are all constants: those computed once for all runs (or read in another
  /// form by their reader), the bytes of their results, and those that every run computes because
  /// ExecutorOptions::foldedConstantsLimit leaves no room.
  int64_t foldedNodes = 0;
  int64_t foldedBytes = 0;
  int64_t streamedNodes = 0;
  /// Nanoseconds by operator, with ExecutorOptions::timeOperators.
  llvm::StringMap<int64_t> operatorNanoseconds;

  /// An upper bound of the memory that the run used at one instant.
  int64_t temporaryPeak() const { return arenaBytes + scratchBytes + dynamicBytes; }
};

/// Executes one model. Holds memory between runs (an arena, constants); one run at a time.
/// The model and the kernels must outlive it, and must not change.
///
/// Results of shape inference that the graph carries are used to place intermediate tensors before
/// the run; tensors of unknown size are allocated when they are computed.
class Executor {
public:
  /// Fails, before anything runs, when an operator has no kernel (and no function body): an
  /// Unsupported diagnostic that names operator, domain, version and node. Fails too when a
  /// constant's data cannot be had.
  static llvm::Expected<std::unique_ptr<Executor>> create(const ir::Model& model,
                                                          const KernelRegistry& kernels,
                                                          const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs the graph. Every graph input without default contents must be given once; element type,
  /// rank and extents are those declared, and a symbol has one value over all inputs. Returns one
  /// tensor per graph output, in order: memory of its own, or for a bound output the caller's
  /// buffer. After an error bound buffers may hold partial results.
  llvm::Expected<std::vector<Tensor>> run(llvm::ArrayRef<NamedView> inputs,
                                          llvm::ArrayRef<Binding> bindings = {});
  /// The same with one view per graph input, in order.
  llvm::Expected<std::vector<Tensor>> run(llvm::ArrayRef<TensorView> inputs,
                                          llvm::ArrayRef<Binding> bindings = {});

  /// The same into `outputs`, whose storage is used again: a caller that hands in the vector of the
  /// run before makes runs of unchanged extents free of allocations. The former tensors stay until
  /// the run is over, so that inputs may be views of them. After an error `outputs` is as before.
  llvm::Error run(llvm::ArrayRef<NamedView> inputs, llvm::ArrayRef<Binding> bindings,
                  std::vector<Tensor>& outputs);

  /// Gives back what is kept for the next run: arena, scratch, free memory of former tensors.
  void dropMemory();

  /// Of the latest run.
  const RunStatistics& statistics() const;
  const std::shared_ptr<Allocator>& allocator() const;
  /// The graph that is executed: the model's, or a copy with functions inlined.
  const ir::Graph& graph() const;

private:
  class Impl;
  explicit Executor(std::unique_ptr<Impl> implementation);
  std::unique_ptr<Impl> impl;
};

} // namespace kvopt::runtime
