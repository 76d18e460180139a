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

/// Domain ("" for ONNX's own) → version.
using OpsetImports = std::map<std::string, int64_t, std::less<>>;

/// What the graphs of one model share.
class GraphContext {
public:
  explicit GraphContext(const OpRegistry& registry) : operators(registry) {}
  GraphContext(const GraphContext&) = delete;
  GraphContext& operator=(const GraphContext&) = delete;

  const OpRegistry& ops() const { return operators; }
  OpName intern(OpName name);
  /// Counts every edit of any of the graphs; 0 means that nothing was touched since import.
  uint64_t edits() const { return editCount; }
  /// Whether a value of a subgraph, any one, has the name.
  bool isNameInSubgraph(llvm::StringRef name) const { return subgraphNames.count(name) != 0; }
  void noteEdit() { ++editCount; }
  void resetEdits() { editCount = 0; }
  /// Counts nodes in lists that are walked, readers of values, and values that are searched for
  /// dependencies: the work that analyses and passes do, without a clock. Walks that end early
  /// count as whole ones. Threads that share a model may lose counts.
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
  llvm::StringMap<unsigned> subgraphNames; // how many values have the name
};

/// A graph, a subgraph of an attribute (`parentNode` set), or a function's body.
///
/// Iterating `nodes()` while editing: inserting anywhere is fine; erasing the current node needs
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
  /// The imported version of a domain; 0 when it is not imported.
  int64_t opsetVersion(llvm::StringRef domain = "") const;
  /// The node whose attribute holds this graph; null for a main graph or a function's body.
  Node* parentNode() const { return holder; }
  /// Whether any of the nodes holds a graph.
  bool hasSubgraphs() const { return heldGraphs != 0; }

  llvm::StringRef name() const { return graphName; }
  void setName(std::string name) { graphName = std::move(name); }

  /// For walks over all nodes, which `GraphContext::visits` counts.
  llvm::iplist<Node>& nodes() {
    sharedContext.noteVisits(listedNodes);
    return nodeList;
  }
  const llvm::iplist<Node>& nodes() const {
    sharedContext.noteVisits(listedNodes);
    return nodeList;
  }
  /// The first node, and the one after a node of this graph; null where there is none.
  Node* firstNode() { return nodeList.empty() ? nullptr : &nodeList.front(); }
  Node* nodeAfter(Node& node);
  llvm::ArrayRef<std::unique_ptr<Value>> inputs() const { return inputList; }
  llvm::ArrayRef<std::unique_ptr<Value>> initializers() const { return initializerList; }
  llvm::ArrayRef<Value*> outputs() const { return outputList; }

  /// The value of that name here or, with `enclosing`, in an enclosing graph; null if none.
  Value* findValue(llvm::StringRef name, bool enclosing = false) const;

  /// How many values have names.
  size_t valueCount() const { return valuesByName.size(); }

  /// The names given to the following must be new in this graph; ask freshName().
  Value& addInput(llvm::StringRef name, TensorType type);
  Value& addInitializer(llvm::StringRef name, TensorRef data);
  /// An initializer whose contents kvopt does not interpret (sparse).
  Value& addOpaqueInitializer(llvm::StringRef name, TensorType type);
  /// Gives an existing input default contents (an initializer of the same name).
  void setInputDefault(Value& input, TensorRef data);
  /// Appends an output slot.
  void addOutput(Value& value);
  void setOutput(unsigned slot, Value& value);
  void removeOutput(unsigned slot);
  /// Requires that nothing reads the input.
  void removeInput(Value& input);
  /// Requires that nothing reads the initializer.
  void removeInitializer(Value& initializer);

  /// A node before `before` (at the end when null). Result names may be empty for omitted results.
  Node& create(OpName op, llvm::ArrayRef<Value*> operands,
               llvm::ArrayRef<llvm::StringRef> resultNames, Node* before = nullptr);
  /// The same with fresh result names derived from `hint` (the operator's name when empty).
  Node& createFresh(OpName op, llvm::ArrayRef<Value*> operands, unsigned resultCount,
                    Node* before = nullptr, llvm::StringRef hint = "");
  /// A fresh initializer.
  Value& addConstant(llvm::StringRef hint, TensorRef data);
  /// Requires node.isUnused().
  void erase(Node& node);
  void moveBefore(Node& node, Node* before);
  /// Puts the nodes, which stand one after another somewhere before `before` (at the end when
  /// null) in any order, into this order there.
  void arrange(llvm::ArrayRef<Node*> nodes, Node* before);
  /// Erases nodes whose results nobody reads (whole dead chains) and initializers without readers,
  /// in subgraphs too.
  /// Nodes with subgraphs are erased like any other: ONNX operators have no side effects. Returns
  /// the number of erased nodes.
  unsigned eraseDeadNodes();

  void rename(Value& value, llvm::StringRef newName);
  /// A name that neither this graph nor an enclosing one uses, nor any subgraph of the model.
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
  unsigned heldGraphs = 0; // those held by the nodes, not by theirs
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

/// Erases those of the nodes that nothing reads, and what only they read, in enclosing graphs too.
/// Calls `erasing` for each node before it goes. Costs what is erased; initializers stay.
void eraseDeadChains(llvm::SmallVector<Node*, 16> candidates,
                     llvm::function_ref<void(Node&)> erasing);

/// The values of enclosing graphs that the node's subgraphs read; empty for a node without any.
llvm::SmallVector<Value*, 4> capturedValues(const Node& node);

} // namespace kvopt::ir
