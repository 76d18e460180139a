// Kernel: function that executes one operator, and the registry of all kernels.
#pragma once

#include "ir/graph.h"
#include "runtime/memory/tensor_view.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kvopt::meaning {
class Call;
} // namespace kvopt::meaning

namespace kvopt::runtime {

class ConstantMemory;
class ThreadPool;
struct ConstantWeights;
struct Tensor;

/// Interface of a kernel to one execution of its node. Inputs are contiguous unless the kernel is
/// registered with `acceptsStrides`. Kernels validate everything that they read, because shapes,
/// element types and indices come from files and callers.
class KernelContext {
public:
  virtual ~KernelContext() = default;

  const ir::Node& node() const { return executed; }
  /// Version of the node's domain.
  int64_t opset() const;
  unsigned inputCount() const { return executed.operands().size(); }
  /// The operand; null for an absent optional one.
  virtual const TensorView* input(unsigned index) const = 0;
  bool has(unsigned index) const { return input(index) != nullptr; }
  /// A required operand; asserts that it is present, which the verifier ensures.
  const TensorView& in(unsigned index) const;
  /// Constants that the kernel reads instead of operand `index`, its weight operand; `in` then
  /// returns its element type and extents without data. Null if the kernel reads the operand.
  virtual const ConstantWeights* weights(unsigned) const { return nullptr; }
  /// Whether the result is used.
  bool wants(unsigned result) const;

  /// Contiguous, uninitialized storage for a result. Fails if the size overflows or memory is
  /// short. Each used result must be set exactly once, by this function or one of the next two.
  /// Storage for an unused result is scratch memory.
  virtual llvm::Expected<TensorView> output(unsigned result, ir::ElementType element,
                                            llvm::ArrayRef<int64_t> shape) = 0;
  /// Makes operand `operand`'s storage, with the shape `shape`, the result (an Alias::View of the
  /// operator).
  virtual llvm::Error outputView(unsigned result, unsigned operand,
                                 llvm::ArrayRef<int64_t> shape) = 0;
  /// For an Alias::InPlace or Alias::Reuse result: storage with the operand's contents. It is the
  /// operand's own storage if that may be overwritten, otherwise a copy (of a constant, or of
  /// memory that the caller did not bind). The executor's statistics count copies.
  virtual llvm::Expected<TensorView> outputInPlace(unsigned result, unsigned operand) = 0;

  /// Uninitialized memory for the duration of this call, aligned to 64 bytes.
  virtual llvm::Expected<std::span<std::byte>> scratch(size_t bytes) = 0;
  /// Calls `body` for 0 … count-1, possibly on several threads, which must not affect the results.
  virtual void parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body) = 0;
  /// Maximum number of simultaneous calls of `body`.
  virtual unsigned threads() const = 0;
  /// Whether the operand is in memory that belongs to the caller of the run, like caches.
  virtual bool isCallersMemory(unsigned) const { return true; }
  /// Counts bytes that an in-place operator writes to cache memory.
  virtual void noteCacheWrite(int64_t bytes) = 0;

  /// Executes the subgraph in attribute `attribute`, which has no inputs. Its outputs become the
  /// node's results without a copy.
  virtual llvm::Error runBranch(llvm::StringRef attribute);
  /// Executes the subgraph in attribute `attribute` with one tensor for each of its inputs, and
  /// returns its outputs, which stay valid until the node ends. Inputs without other owners may be
  /// overwritten.
  virtual llvm::Expected<std::vector<Tensor>> runBody(llvm::StringRef attribute,
                                                      std::vector<Tensor> inputs);
  /// A required operand together with its owner.
  virtual Tensor share(unsigned index) const;
  /// Contiguous, uninitialized memory with its own owner.
  virtual llvm::Expected<Tensor> temporary(ir::ElementType element, llvm::ArrayRef<int64_t> shape);

  /// An error that names the node.
  llvm::Error error(const std::string& message) const;

protected:
  explicit KernelContext(const ir::Node& node) : executed(node) {}
  /// Scratch memory as a tensor, for an unused result.
  llvm::Expected<TensorView> scratchTensor(ir::ElementType element, llvm::ArrayRef<int64_t> shape);

private:
  const ir::Node& executed;
};

using KernelFunction = llvm::Error (*)(KernelContext&);

struct Kernel {
  ir::OpName op;
  /// First and last version of the operator's domain that the kernel implements.
  int64_t since = 1;
  int64_t until = INT64_MAX;
  KernelFunction run = nullptr;
  /// Without `run`: the definition of the operator, from which results are computed, slowly.
  void (*definition)(meaning::Call&) = nullptr;
  bool acceptsStrides = false;
  /// Operand that the kernel reads through KernelContext::weights, if any.
  std::optional<unsigned> weightOperand;
  /// Converts a constant weight operand once, before the first run. A null result means that the
  /// kernel reads the operand. If the function is null, the kernel reads the forms of weightsOf
  /// (weight_forms.h).
  std::shared_ptr<const ConstantWeights> (*packWeights)(const ir::Value&, ConstantMemory&,
                                                        ThreadPool&) = nullptr;

  llvm::Error execute(KernelContext& context) const;
};

/// All kernels. Filled once, then only read.
class KernelRegistry {
public:
  KernelRegistry() = default;
  KernelRegistry(const KernelRegistry&) = delete;
  KernelRegistry& operator=(const KernelRegistry&) = delete;

  /// Copies the text of `op`. Version ranges of one operator must not overlap (asserted).
  Kernel& add(ir::OpName op, int64_t since, KernelFunction run, int64_t until = INT64_MAX);
  /// Adds a definition of the operator from version `since` on. It executes nodes that no kernel
  /// does.
  void addDefinition(ir::OpName op, int64_t since, void (*definition)(meaning::Call&));
  /// From now on a definition is taken wherever there is one: a second opinion on the kernels.
  void preferDefinitions() { prefersDefinitions = true; }
  const Kernel* find(ir::OpName op, int64_t version) const;
  /// Without definitions.
  std::vector<const Kernel*> all() const;

private:
  using ByName = llvm::DenseMap<ir::OpName, llvm::SmallVector<Kernel*, 2>>;
  Kernel& insert(ByName& map, ir::OpName op, int64_t since);

  std::deque<std::string> names;
  std::deque<Kernel> kernels, definitions;
  ByName byName, definitionsByName;
  bool prefersDefinitions = false;
};

/// Registers every kernel in runtime/kernels (generated).
void registerAll(KernelRegistry& registry);

} // namespace kvopt::runtime
