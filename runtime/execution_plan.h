// ExecutionPlan: a graph made ready to run: live nodes in order with their kernels, a slot for
// every tensor, and which tensors share storage for how long.
#pragma once

#include "runtime/kernel.h"

#include "llvm/ADT/DenseMap.h"

#include <vector>

namespace kvopt {

struct ExecutionPlan {
  static constexpr unsigned none = UINT_MAX;

  /// Tensors that share one storage: views of each other and in-place successors.
  struct Group {
    enum class Kind {
      Constant, ///< contents of the model
      Input,    ///< memory of the caller
      Planned,  ///< in the arena when its size is known before the run
      OnDemand, ///< allocated by itself: leaves the run, or may turn out to be the caller's memory
    };
    Kind kind = Kind::Planned;
    /// Steps; `last` is the number of steps when the group outlives the run.
    int64_t first = 0;
    int64_t last = 0;
    /// The first one is the tensor whose storage it is.
    llvm::SmallVector<unsigned, 2> slots;
  };

  struct Slot {
    const Value* value = nullptr;
    unsigned group = none;
    /// The last step that reads it, or the number of steps for a graph output.
    int64_t lastRead = 0;
    /// Indices into `dims`, meaningful if `ranked`.
    bool ranked = false;
    llvm::SmallVector<unsigned, 4> shape;
  };

  struct Step {
    const Node* node = nullptr;
    const Kernel* kernel = nullptr;
    llvm::SmallVector<unsigned, 6> operands; // slots, `none` when absent
    llvm::SmallVector<unsigned, 3> results;  // slots, `none` when nobody asked
    /// Operands whose memory a result may overwrite as far as later readers are concerned.
    llvm::SmallVector<bool, 6> overwritable;
    /// Groups nobody needs after this step.
    llvm::SmallVector<unsigned, 4> dying;
  };

  std::vector<Step> steps;
  std::vector<Slot> slots;
  std::vector<Group> groups;
  /// Distinct extents of all slots.
  std::vector<Dim> dims;
  std::vector<unsigned> inputs;  // slot per graph input, `none` where nobody reads it
  std::vector<unsigned> outputs; // slot per graph output

  /// Fails when a node that the outputs depend on has no kernel: an Unsupported diagnostic with
  /// operator, domain, version and node. The graph must outlive the plan.
  static llvm::Expected<ExecutionPlan> build(const Graph& graph, const KernelRegistry& kernels);
};

/// The nodes that the graph's outputs depend on, in execution order.
std::vector<const Node*> liveNodes(const Graph& graph);

} // namespace kvopt
