// Graph: inputs, initializers, a list of nodes in execution order, outputs.
#pragma once

#include "ir/node.h"
#include "support/array_pool.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/ilist.h"
#include "llvm/Support/Allocator.h"
#include "llvm/Support/StringSaver.h"

#include <atomic>
#include <map>

namespace kvopt::onnx {
class GraphProto;
} // namespace kvopt::onnx

namespace kvopt::ir {

class OpRegistry;

/// Map from domain ("" for ONNX's own) to version.
using OpsetImports = std::map<std::string, int64_t, std::less<>>;

/// State shared by the graphs of one model.
class GraphContext {
public:
  explicit GraphContext(const OpRegistry& registry) : operators(registry) {}
  GraphContext(const GraphContext&) = delete;
  GraphContext& operator=(const GraphContext&) = delete;

  const OpRegistry& ops() const { return operators; }
  OpName intern(OpName name);
  /// Number of edits of all graphs; 0 if nothing has changed since import.
  uint64_t edits() const { return editCount; }
  /// Whether a value of any subgraph has the name.
  bool isNameInSubgraph(llvm::StringRef name) const { return subgraphNames.count(name) != 0; }
  void noteEdit() { ++editCount; }
  void resetEdits() { editCount = 0; }
  /// Work that analyses and passes have done, measured without a clock: the number of nodes in
  /// lists that were traversed, of readers of values, and of values that were searched for
  /// dependencies. Traversals that end early count as complete. Counts may be lost if threads share
  /// a model.
  uint64_t visits() const { return visitCount.load(std::memory_order_relaxed); }
  void noteVisits(uint64_t count) const {
    visitCount.store(visits() + count, std::memory_order_relaxed);
  }

private:
  friend class Graph;
  friend class Node;
  friend struct llvm::ilist_alloc_traits<Node>;
  const OpRegistry& operators;
  llvm::BumpPtrAllocator allocator;
  llvm::UniqueStringSaver strings{allocator};
  ArrayPool<Node> nodePool;
  ArrayPool<Use> usePool;
  ArrayPool<Value> resultPool;
  uint64_t editCount = 0;
  mutable std::atomic<uint64_t> visitCount{0};
  llvm::StringMap<unsigned> subgraphNames; // number of values with the name
};

/// A graph, a subgraph of an attribute (`parentNode` set), or a function's body.
///
/// Inserting nodes is safe while iterating over `nodes()`; erasing the current node requires
/// llvm::make_early_inc_range. Addresses of nodes and values are stable.
class Graph {
public:
  /// `opsets` must outlive the graph.
  Graph(GraphContext& context, const OpsetImports& opsets, Node* parentNode = nullptr);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  GraphContext& context() const { return sharedContext; }
  const OpsetImports& opsets() const { return imports; }
  /// Imported version of a domain; 0 if it is not imported.
  int64_t opsetVersion(llvm::StringRef domain = "") const;
  /// Node whose attribute holds this graph; null for a main graph or a function's body.
  Node* parentNode() const { return holder; }
  /// Whether a node of this graph holds a graph.
  bool hasSubgraphs() const { return heldGraphs != 0; }

  llvm::StringRef name() const { return graphName; }
  void setName(std::string name) { graphName = std::move(name); }

  /// For traversals of all nodes, which `GraphContext::visits` counts.
  llvm::iplist<Node>& nodes() {
    sharedContext.noteVisits(listedNodes);
    return nodeList;
  }
  const llvm::iplist<Node>& nodes() const {
    sharedContext.noteVisits(listedNodes);
    return nodeList;
  }
  /// First node, and the node after a node of this graph; null if there is none.
  Node* firstNode() { return nodeList.empty() ? nullptr : &nodeList.front(); }
  Node* nodeAfter(Node& node);
  llvm::ArrayRef<std::unique_ptr<Value>> inputs() const { return inputList; }
  llvm::ArrayRef<std::unique_ptr<Value>> initializers() const { return initializerList; }
  llvm::ArrayRef<Value*> outputs() const { return outputList; }

  /// Value with that name in this graph or, with `enclosing`, in an enclosing graph; null if there
  /// is none.
  Value* findValue(llvm::StringRef name, bool enclosing = false) const;

  /// Number of named values.
  size_t valueCount() const { return valuesByName.size(); }

  /// The following functions require names that are new in this graph; see freshName().
  Value& addInput(llvm::StringRef name, TensorType type);
  Value& addInitializer(llvm::StringRef name, TensorRef data);
  /// Adds an initializer whose contents kvopt does not interpret (sparse).
  Value& addOpaqueInitializer(llvm::StringRef name, TensorType type);
  /// Gives an existing input a default (an initializer of the same name).
  void setInputDefault(Value& input, TensorRef data);
  /// Appends an output slot.
  void addOutput(Value& value);
  void setOutput(unsigned slot, Value& value);
  void removeOutput(unsigned slot);
  /// Requires that the input is not read.
  void removeInput(Value& input);
  /// Requires that the initializer is not read.
  void removeInitializer(Value& initializer);

  /// Creates a node before `before` (at the end if null). Result names may be empty for omitted
  /// results.
  Node& create(OpName op, llvm::ArrayRef<Value*> operands,
               llvm::ArrayRef<llvm::StringRef> resultNames, Node* before = nullptr);
  /// The same with new result names derived from `hint` (the operator's name if empty).
  Node& createFresh(OpName op, llvm::ArrayRef<Value*> operands, unsigned resultCount,
                    Node* before = nullptr, llvm::StringRef hint = "");
  /// Adds an initializer with a new name.
  Value& addConstant(llvm::StringRef hint, TensorRef data);
  /// Requires node.isUnused().
  void erase(Node& node);
  void moveBefore(Node& node, Node* before);
  /// Moves adjacent nodes, in the given order, to the position before `before` (to the end if
  /// null). They must be before that position.
  void arrange(llvm::ArrayRef<Node*> nodes, Node* before);
  /// Erases nodes whose results are not read (including whole dead chains) and initializers without
  /// readers, in subgraphs too. Nodes with subgraphs are erased like others, because ONNX operators
  /// have no side effects. Returns the number of erased nodes.
  unsigned eraseDeadNodes();

  void rename(Value& value, llvm::StringRef newName);
  /// A name that is unused in this graph, in enclosing graphs, and in all subgraphs of the model.
  std::string freshName(llvm::StringRef hint) const;

  const onnx::GraphProto* source() const { return sourceMessage; }
  void setSource(const onnx::GraphProto* message) { sourceMessage = message; }

private:
  friend class Node;
  friend class Value;
  void claimName(Value& value, llvm::StringRef name);
  void releaseName(Value& value);
  void renumber() const;
  void number(Node& node);
  void spreadNumbers(Node& node);
  void forgetSubgraphName(llvm::StringRef name);

  GraphContext& sharedContext;
  const OpsetImports& imports;
  Node* holder;
  unsigned heldGraphs = 0; // held directly by the nodes
  size_t listedNodes = 0;
  std::string graphName;
  llvm::StringMap<Value*> valuesByName;
  std::vector<std::unique_ptr<Value>> inputList;
  std::vector<std::unique_ptr<Value>> initializerList;
  llvm::iplist<Node> nodeList;
  llvm::SmallVector<Value*, 8> outputList;
  mutable llvm::StringMap<unsigned> freshCounters;
  mutable bool orderValid = false;
  const onnx::GraphProto* sourceMessage = nullptr;
};

/// Calls `visit` for the graph and, depth first, for every subgraph held by its nodes.
void forEachGraph(Graph& graph, llvm::function_ref<void(Graph&)> visit);

/// Erases those of the nodes that are not read, and the nodes that only they read, in enclosing
/// graphs too. Calls `erasing` for each node before it is erased. Initializers are kept. Linear in
/// the number of erased nodes.
void eraseDeadChains(llvm::SmallVector<Node*, 16> candidates,
                     llvm::function_ref<void(Node&)> erasing);

/// Values of enclosing graphs that the node's subgraphs read.
llvm::SmallVector<Value*, 4> capturedValues(const Node& node);

} // namespace kvopt::ir
