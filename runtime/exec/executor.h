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
  /// Number of threads of the executor's own pool, including the caller; 0 means usableCores().
  unsigned threads = 0;
  /// A pool to use instead. Executors that run simultaneously should share one, so that there are
  /// not more threads than cores.
  std::shared_ptr<ThreadPool> pool;
  /// If null, the executor creates its own allocator.
  std::shared_ptr<Allocator> allocator;
  /// Measures the time of each operator.
  bool timeOperators = false;
  /// Maximum memory of constants that are computed from other constants, in bytes. Nodes that would
  /// exceed it are computed in every run. -1 means a quarter of the machine's memory.
  int64_t foldedConstantsLimit = -1;
  /// An executor of the same model with the same kernels, whose constants are shared; null:
  /// computes its own constants.
  const class Executor* constantsOf = nullptr;
};

/// An input of one run. The caller owns the memory, which must live until the run returns.
struct NamedView {
  llvm::StringRef name;
  TensorView view;
};

/// Requests that the buffer given as `input` holds `output` after the run. The graph may overwrite
/// the buffer while it runs; otherwise the output is copied to it at the end.
struct Binding {
  llvm::StringRef input;
  llvm::StringRef output;
};

/// Statistics of one run. Memory includes everything except inputs, constants and bound buffers.
struct RunStatistics {
  /// Size of the arena: intermediate tensors whose sizes are known before the run.
  int64_t arenaBytes = 0;
  /// Lower bound of the memory for the planned tensors in any placement.
  int64_t arenaLowerBound = 0;
  /// Maximum scratch memory of one operator.
  int64_t scratchBytes = 0;
  /// Maximum memory, at any one time, of tensors outside of the arena: outputs, and tensors whose
  /// size is known only when they are computed.
  int64_t dynamicBytes = 0;
  /// Memory kept for the next run: arena, scratch, and free memory of earlier tensors.
  int64_t reservedBytes = 0;
  /// Memory requested from the allocator during the run.
  int64_t bytesAllocated = 0;
  int64_t allocations = 0;
  /// Bytes copied because an operand could not be overwritten in place, or because a bound output
  /// was computed elsewhere.
  int64_t inPlaceBytesCopied = 0;
  /// Bytes of strided inputs copied for kernels that need contiguous ones.
  int64_t packedBytes = 0;
  int64_t cacheBytesWritten = 0;
  /// Nodes with constant operands: the number that is computed once for all runs (or whose readers
  /// use another format), the size of their results in bytes, and the number that every run
  /// computes because of ExecutorOptions::foldedConstantsLimit.
  int64_t foldedNodes = 0;
  int64_t foldedBytes = 0;
  int64_t streamedNodes = 0;
  /// Number of nodes without a kernel, by operator: they run, slowly, by the operator's definition.
  llvm::StringMap<int64_t> definedNodes;
  /// Nanoseconds for each operator, with ExecutorOptions::timeOperators.
  llvm::StringMap<int64_t> operatorNanoseconds;

  /// Upper bound of the memory that the run used at any one time.
  int64_t temporaryPeak() const { return arenaBytes + scratchBytes + dynamicBytes; }
};

/// Executes one model. Keeps memory between runs (an arena, constants). Only one run at a time. The
/// model and the kernels must outlive it and must not change.
///
///  Inferred shapes are used to place intermediate tensors before the run; tensors of unknown size
///  are allocated when they are computed.
class Executor {
public:
  /// Fails before anything runs if an operator has no kernel (and no function body), with an
  /// Unsupported diagnostic that names operator, domain, version and node. Also fails if a
  /// constant's data is unavailable.
  static llvm::Expected<std::unique_ptr<Executor>> create(const ir::Model& model,
                                                          const KernelRegistry& kernels,
                                                          const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs the graph. Every graph input without default contents must be given once. Element type,
  /// rank and extents must match the declaration, and a symbol must have the same value in all
  /// inputs. Returns one tensor for each graph output, in order: new memory or, for a bound output,
  /// the caller's buffer. After an error, bound buffers may hold partial results.
  llvm::Expected<std::vector<Tensor>> run(llvm::ArrayRef<NamedView> inputs,
                                          llvm::ArrayRef<Binding> bindings = {});
  /// The same with one view for each graph input, in order.
  llvm::Expected<std::vector<Tensor>> run(llvm::ArrayRef<TensorView> inputs,
                                          llvm::ArrayRef<Binding> bindings = {});

  /// The same into `outputs`, whose storage is reused: if the caller passes the vector of the
  /// previous run and extents are unchanged, the run does not allocate memory. The previous tensors
  /// live until the end of the run, so inputs may be views of them. After an error, `outputs` is
  /// unchanged.
  llvm::Error run(llvm::ArrayRef<NamedView> inputs, llvm::ArrayRef<Binding> bindings,
                  std::vector<Tensor>& outputs);

  /// Releases memory kept for the next run: arena, scratch, and free memory of earlier tensors.
  void dropMemory();

  /// Statistics of the latest run.
  const RunStatistics& statistics() const;
  const std::shared_ptr<Allocator>& allocator() const;
  /// The executed graph: that of the model, or a copy with inlined functions.
  const ir::Graph& graph() const;

private:
  class Impl;
  explicit Executor(std::unique_ptr<Impl> implementation);
  std::unique_ptr<Impl> impl;
};

} // namespace kvopt::runtime
