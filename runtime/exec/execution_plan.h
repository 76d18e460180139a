// ExecutionPlan: a graph made ready to run: live nodes in order with their kernels, a slot for
// every tensor, which tensors share storage for how long, and the same for subgraphs.
#pragma once

#include "runtime/exec/kernel.h"

#include "llvm/ADT/DenseMap.h"

#include <memory>
#include <vector>

namespace kvopt::runtime {

struct ExecutionPlan {
  static constexpr unsigned none = UINT_MAX;

  /// Tensors that share one storage: views of each other and in-place successors.
  struct Group {
    enum class Kind {
      Constant, ///< contents of the model, or computed from them alone
      Input,    ///< memory of the caller
      Captured, ///< a value of an enclosing graph, in that graph's memory
      Planned,  ///< in the arena when its size is known before the run
      OnDemand, ///< allocated by itself: leaves the run, or may turn out to be the caller's memory
    };
    Kind kind = Kind::Planned;
    /// The memory may be a constant's: always for constants, and for results of a subgraph that may
    /// hand one out.
    bool mayBeConstant = false;
    /// Steps; `last` is the number of steps when the group outlives the run.
    int64_t first = 0;
    int64_t last = 0;
    /// The first one is the tensor whose storage it is.
    llvm::SmallVector<unsigned, 2> slots;
  };

  struct Slot {
    const ir::Value* value = nullptr;
    unsigned group = none;
    /// The last step that reads it, or the number of steps for a graph output.
    int64_t lastRead = 0;
    /// Indices into `dims`, meaningful if `ranked`.
    bool ranked = false;
    llvm::SmallVector<unsigned, 4> shape;
  };

  /// A subgraph of a step's node: only what it is asked for runs.
  struct Branch {
    llvm::StringRef attribute;
    /// Its place among all branches of the plan that holds it.
    unsigned index = 0;
    std::unique_ptr<ExecutionPlan> plan;
    /// Slots of the plan that holds it, one for each of `plan->captured`.
    llvm::SmallVector<unsigned, 8> captured;
    /// It has inputs of its own and may run more than once: its node's results are not the tensors
    /// that it hands out.
    bool isBody = false;
    /// Captured values whose memory the branch may overwrite as far as later readers are concerned.
    llvm::SmallVector<bool, 8> overwritable;
  };

  struct Step {
    Step() = default;
    Step(Step&&) = default;
    Step& operator=(Step&&) = default;

    const ir::Node* node = nullptr;
    const Kernel* kernel = nullptr;
    llvm::SmallVector<unsigned, 6> operands; // slots, `none` when absent
    llvm::SmallVector<unsigned, 3> results;  // slots, `none` when nobody asked
    /// Operands whose memory a result may overwrite as far as later readers are concerned.
    llvm::SmallVector<bool, 6> overwritable;
    std::vector<Branch> branches;
    /// Every operand is an initializer or the result of a constant step, and so are its results in
    /// every run: it may be computed once. Its results are in groups of constants.
    bool isConstant = false;
    /// Groups nobody needs after this step.
    llvm::SmallVector<unsigned, 4> dying;
  };

  std::vector<Step> steps;
  std::vector<Slot> slots;
  std::vector<Group> groups;
  /// Distinct extents of all slots.
  std::vector<ir::Dim> dims;
  std::vector<unsigned> inputs;  // slot per graph input, `none` where nobody reads it
  std::vector<unsigned> outputs; // slot per graph output
  /// Slots of values of enclosing graphs.
  std::vector<unsigned> captured;
  unsigned branchCount = 0;

  /// What the memory of an output may be besides memory of its own.
  struct OutputStorage {
    /// Equal for outputs that may share memory.
    unsigned storage = 0;
    bool mayBeConstant = false;
    llvm::SmallVector<unsigned, 2> captured; // indices into `captured`
  };
  std::vector<OutputStorage> outputStorage;

  /// Fails when a node that the outputs depend on has no kernel: an Unsupported diagnostic with
  /// operator, domain, version and node. That holds for every subgraph of such a node, whether a
  /// run would enter it or not. Fails too for subgraphs nested too deeply and for those with fewer
  /// outputs than their node has results. The graph must outlive the plan.
  static llvm::Expected<ExecutionPlan> build(const ir::Graph& graph, const KernelRegistry& kernels);
};

/// Notes which subgraph of which node an error comes from.
llvm::Error inBranch(llvm::Error error, llvm::StringRef attribute, const ir::Node& node);

/// The nodes that the graph's outputs depend on, through subgraphs too, in execution order.
std::vector<const ir::Node*> liveNodes(const ir::Graph& graph);

} // namespace kvopt::runtime
