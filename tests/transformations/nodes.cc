// The list of nodes: more of them, in another order, of another opset.
#include "ir/shapes/shape_inference.h"
#include "passes/opset/op_history.h"
#include "passes/opset/opset_conversion.h"
#include "tests/transformations/transformation.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt {
using namespace ir;
using namespace opset;

namespace {

/// Makes the readers of a value, but not the outputs that it is, read a copy.
void copyForReaders(Value& value, Graph& graph, Node* before) {
  llvm::SmallVector<Use*, 8> uses;
  for (Use& use : value.uses())
    uses.push_back(&use);
  if (uses.empty())
    return;
  Node& copy = graph.createFresh("Identity", {&value}, 1, before, "copy");
  copy.result().setType(value.type());
  for (Use* use : uses)
    use->user().setOperand(use->operandIndex(), &copy.result());
}

} // namespace

llvm::Expected<bool> insertIdentities(TransformedModel& transformed) {
  forEachGraph(transformed.graph(), [&](Graph& graph) {
    llvm::SmallVector<Node*, 64> nodes;
    for (Node& node : graph.nodes())
      nodes.push_back(&node);
    if (nodes.empty())
      return;
    for (Node* node : nodes) {
      auto next = std::next(node->getIterator());
      Node* before = next == graph.nodes().end() ? nullptr : &*next;
      for (Value& result : node->results())
        if (!result.isAbsent())
          copyForReaders(result, graph, before);
    }
    for (const std::unique_ptr<Value>& input : graph.inputs())
      copyForReaders(*input, graph, nodes.front());
  });
  return true;
}

llvm::Expected<bool> shuffleNodes(TransformedModel& transformed) {
  Graph& graph = transformed.graph();
  llvm::DenseMap<const Node*, size_t> missing;
  llvm::DenseMap<const Node*, std::vector<Node*>> readers;
  std::vector<Node*> ready;
  for (Node& node : graph.nodes()) {
    llvm::SmallVector<Value*, 8> read = capturedValues(node);
    for (const Use& use : node.operands())
      read.push_back(use.value());
    size_t count = 0;
    for (const Value* value : read)
      if (value && value->producer() && &value->graph() == &graph) {
        readers[value->producer()].push_back(&node);
        ++count;
      }
    missing[&node] = count;
    if (count == 0)
      ready.push_back(&node);
  }
  while (!ready.empty()) {
    std::swap(ready[transformed.below(ready.size())], ready.back());
    Node* node = ready.back();
    ready.pop_back();
    graph.moveBefore(*node, nullptr);
    for (Node* reader : readers[node])
      if (--missing[reader] == 0)
        ready.push_back(reader);
  }
  return true;
}

llvm::Expected<bool> raiseToNewestOpset(TransformedModel& transformed) {
  Model& model = *transformed.model;
  // Adapters read types.
  if (llvm::Error error = inferShapes(model.graph()))
    return error;
  for (int64_t version = newestKnownOpset; version > model.graph().opsetVersion(); --version)
    if (!opsetObstacle(model, version)) {
      raiseOpset(model, version);
      return true;
    }
  return false;
}

} // namespace kvopt
