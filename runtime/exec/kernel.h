// Kernel: the function that executes one operator, and the registry of all kernels.
#pragma once

#include "ir/graph.h"
#include "runtime/memory/tensor_view.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <deque>
#include <span>
#include <string>
#include <vector>

namespace kvopt::runtime {

struct ConstantWeights;
struct Tensor;

/// What a kernel sees of one execution of its node. Inputs are contiguous unless the kernel was
/// registered with `acceptsStrides`. A kernel validates what it reads: shapes, element types and
/// index contents come from files and callers.
class KernelContext {
public:
  virtual ~KernelContext() = default;

  const ir::Node& node() const { return executed; }
  /// The version of the node's domain.
  int64_t opset() const;
  unsigned inputCount() const { return executed.operands().size(); }
  /// Null for an absent optional operand.
  virtual const TensorView* input(unsigned index) const = 0;
  bool has(unsigned index) const { return input(index) != nullptr; }
  /// A required operand; asserts that it is present (the verifier has seen to it).
  const TensorView& in(unsigned index) const;
  /// The constants that the kernel reads instead of operand `index`, its weight operand, of which
  /// `in` then has element type and extents but no data. Null where it reads the operand.
  virtual const ConstantWeights* weights(unsigned) const { return nullptr; }
  /// Whether anybody asked for the result.
  bool wants(unsigned result) const;

  /// Contiguous, uninitialized storage for a result. Fails when the size overflows or memory is
  /// short. Each wanted result must be given exactly once, by this or one of the next two. What is
  /// given for a result that nobody wants is scratch memory, and forgotten.
  virtual llvm::Expected<TensorView> output(unsigned result, ir::ElementType element,
                                            llvm::ArrayRef<int64_t> shape) = 0;
  /// The result is operand `operand`'s storage under `shape` (an Alias::View of the operator).
  virtual llvm::Error outputView(unsigned result, unsigned operand,
                                 llvm::ArrayRef<int64_t> shape) = 0;
  /// For an Alias::InPlace or Alias::Reuse result: storage that holds the operand's contents. It is
  /// the operand's own storage when that may be overwritten, and a copy when it may not (a
  /// constant, memory the caller did not offer). The copy is counted in the executor's statistics.
  virtual llvm::Expected<TensorView> outputInPlace(unsigned result, unsigned operand) = 0;

  /// Uninitialized memory for the duration of this call, aligned to 64 bytes.
  virtual llvm::Expected<std::span<std::byte>> scratch(size_t bytes) = 0;
  /// Calls `body` for 0 … count-1, maybe on several threads; results may not depend on that.
  virtual void parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body) = 0;
  /// How many calls of `body` may run at the same time.
  virtual unsigned threads() const = 0;
  /// Whether the operand lies in memory that the caller of the run gave, as caches do.
  virtual bool isCallersMemory(unsigned) const { return true; }
  /// Counts bytes written to cache memory by an in-place operator.
  virtual void noteCacheWrite(int64_t bytes) = 0;

  /// Executes the subgraph in attribute `attribute`, which has no inputs. Its outputs become the
  /// node's results, without a copy.
  virtual llvm::Error runBranch(llvm::StringRef attribute);
  /// Executes the subgraph in attribute `attribute` on one tensor for each of its inputs, and
  /// returns its outputs. They stay as they are while the node is executed, whatever runs after;
  /// an input that nobody else owns may be overwritten.
  virtual llvm::Expected<std::vector<Tensor>> runBody(llvm::StringRef attribute,
                                                      std::vector<Tensor> inputs);
  /// A required operand with what keeps it alive.
  virtual Tensor share(unsigned index) const;
  /// Contiguous, uninitialized memory of its own.
  virtual llvm::Expected<Tensor> temporary(ir::ElementType element, llvm::ArrayRef<int64_t> shape);

  /// An error that names the node.
  llvm::Error error(const std::string& message) const;

protected:
  explicit KernelContext(const ir::Node& node) : executed(node) {}
  /// Scratch memory as a tensor: what a result is put into that nobody wants.
  llvm::Expected<TensorView> scratchTensor(ir::ElementType element, llvm::ArrayRef<int64_t> shape);

private:
  const ir::Node& executed;
};

using KernelFunction = llvm::Error (*)(KernelContext&);

struct Kernel {
  ir::OpName op;
  /// First and last version of the operator's domain that it implements.
  int64_t since = 1;
  int64_t until = INT64_MAX;
  KernelFunction run = nullptr;
  bool acceptsStrides = false;
  /// The operand that the kernel reads through KernelContext::weights, if any.
  std::optional<unsigned> weightOperand;
};

/// All kernels. Filled once, then read only.
class KernelRegistry {
public:
  KernelRegistry() = default;
  KernelRegistry(const KernelRegistry&) = delete;
  KernelRegistry& operator=(const KernelRegistry&) = delete;

  /// `op` text is copied. Version ranges of one operator must not overlap (asserted).
  Kernel& add(ir::OpName op, int64_t since, KernelFunction run, int64_t until = INT64_MAX);
  const Kernel* find(ir::OpName op, int64_t version) const;
  std::vector<const Kernel*> all() const;

private:
  std::deque<std::string> names;
  std::deque<Kernel> kernels;
  llvm::DenseMap<ir::OpName, llvm::SmallVector<Kernel*, 2>> byName;
};

/// Every kernel under runtime/kernels (generated).
void registerAll(KernelRegistry& registry);

} // namespace kvopt::runtime
