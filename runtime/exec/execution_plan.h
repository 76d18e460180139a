// ExecutionPlan: a graph prepared for execution. It contains the live nodes in order with their
// kernels, a slot for every tensor, the storage that tensors share with its lifetime, and the same
// for subgraphs.
#pragma once

#include "runtime/exec/kernel.h"

#include "llvm/ADT/DenseMap.h"

#include <memory>
#include <vector>

namespace kvopt::runtime {

struct ExecutionPlan {
  static constexpr unsigned none = UINT_MAX;

  /// Tensors that share storage: views of each other, and in-place successors.
  struct Group {
    enum class Kind {
      Constant, ///< contents of the model, or computed only from them
      Input,    ///< memory of the caller
      Captured, ///< a value of an enclosing graph, in that graph's memory
      Planned,  ///< in the arena if its size is known before the run
      OnDemand, ///< allocated separately: it leaves the run, or may be the caller's memory
    };
    Kind kind = Kind::Planned;
    /// Whether the memory may belong to a constant: true for constants, and for results of a
    /// subgraph that may return one.
    bool mayBeConstant = false;
    /// First and last step; `last` is the number of steps if the group outlives the run.
    int64_t first = 0;
    int64_t last = 0;
    /// Members; the first one is the tensor that owns the storage.
    llvm::SmallVector<unsigned, 2> slots;
  };

  struct Slot {
    const ir::Value* value = nullptr;
    unsigned group = none;
    /// Last step that reads it, or the number of steps for a graph output.
    int64_t lastRead = 0;
    /// Indices into `dims`; valid if `ranked`.
    bool ranked = false;
    llvm::SmallVector<unsigned, 4> shape;
  };

  /// A subgraph of a step's node. It runs only for requested results.
  struct Branch {
    llvm::StringRef attribute;
    /// Index among all branches of the enclosing plan.
    unsigned index = 0;
    std::unique_ptr<ExecutionPlan> plan;
    /// Slots of the enclosing plan, one for each of `plan->captured`.
    llvm::SmallVector<unsigned, 8> captured;
    /// Whether it has its own inputs and may run more than once. The results of its node are then
    /// not the tensors that it returns.
    bool isBody = false;
    /// Captured values whose memory the branch may overwrite, as far as later readers permit it.
    llvm::SmallVector<bool, 8> overwritable;
  };

  struct Step {
    Step() = default;
    Step(Step&&) = default;
    Step& operator=(Step&&) = default;

    const ir::Node* node = nullptr;
    const Kernel* kernel = nullptr;
    llvm::SmallVector<unsigned, 6> operands; // slots; `none` if absent
    llvm::SmallVector<unsigned, 3> results;  // slots; `none` if unused
    /// Operands whose memory a result may overwrite, as far as later readers permit it.
    llvm::SmallVector<bool, 6> overwritable;
    std::vector<Branch> branches;
    /// Whether the step can be computed once: every operand is an initializer or the result of a
    /// constant step in every run. Its results are then in groups of constants.
    bool isConstant = false;
    /// Groups that are not used after this step.
    llvm::SmallVector<unsigned, 4> dying;
  };

  std::vector<Step> steps;
  std::vector<Slot> slots;
  std::vector<Group> groups;
  /// Distinct extents of all slots.
  std::vector<ir::Dim> dims;
  std::vector<unsigned> inputs;  // slot for each graph input; `none` if it is not read
  std::vector<unsigned> outputs; // slot for each graph output
  /// Slots of values of enclosing graphs.
  std::vector<unsigned> captured;
  unsigned branchCount = 0;

  /// Memory of an output, if it is not memory of its own.
  struct OutputStorage {
    /// Equal for outputs that may share memory.
    unsigned storage = 0;
    bool mayBeConstant = false;
    llvm::SmallVector<unsigned, 2> captured; // indices into `captured`
  };
  std::vector<OutputStorage> outputStorage;

  /// Fails with an Unsupported diagnostic (operator, domain, version and node) if a node that the
  /// outputs depend on has no kernel. This includes all subgraphs of such nodes, even if a run
  /// would not enter them. Also fails for subgraphs that are nested too deeply, and for those with
  /// fewer outputs than their node has results. The graph must outlive the plan.
  static llvm::Expected<ExecutionPlan> build(const ir::Graph& graph, const KernelRegistry& kernels);
};

/// Adds the subgraph and node to an error.
llvm::Error inBranch(llvm::Error error, llvm::StringRef attribute, const ir::Node& node);

/// Nodes that the graph's outputs depend on, including dependencies through subgraphs, in execution
/// order.
std::vector<const ir::Node*> liveNodes(const ir::Graph& graph);

} // namespace kvopt::runtime
