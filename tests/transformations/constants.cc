// Where constants are.
#include "tests/transformations/transformation.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
using namespace ir;

namespace {

llvm::SmallVector<Value*, 32> initializersOf(const Graph& graph) {
  llvm::SmallVector<Value*, 32> found;
  for (const std::unique_ptr<Value>& initializer : graph.initializers())
    if (initializer->constantRef() && !initializer->isGraphOutput())
      found.push_back(initializer.get());
  return found;
}

/// Constant nodes of the graph whose contents are known.
llvm::SmallVector<Node*, 32> constantNodesOf(Graph& graph) {
  llvm::SmallVector<Node*, 32> found;
  for (Node& node : graph.nodes())
    if (node.is("Constant") && node.result().constantRef() && !node.result().isGraphOutput())
      found.push_back(&node);
  return found;
}

Value& constantNode(Graph& graph, const TensorRef& data, llvm::StringRef hint, Node* before) {
  Node& node = graph.createFresh("Constant", {}, 1, before, hint);
  node.setAttribute("value", Attribute::ofTensor(data));
  node.result().setType(TensorType::fixed(data->elementType(), data->shape()));
  return node.result();
}

bool moveToInitializers(Graph& main) {
  bool any = false;
  forEachGraph(main, [&](Graph& graph) {
    for (Node* node : constantNodesOf(graph)) {
      Value& constant = graph.addConstant("constant", node->result().constantRef());
      node->result().replaceAllUsesWith(constant);
      graph.erase(*node);
      any = true;
    }
  });
  return any;
}

} // namespace

llvm::Expected<bool> constantsToNodes(TransformedModel& transformed) {
  bool any = false;
  forEachGraph(transformed.graph(), [&](Graph& graph) {
    Node* first = graph.nodes().empty() ? nullptr : &graph.nodes().front();
    for (Value* initializer : initializersOf(graph)) {
      Value& constant = constantNode(graph, initializer->constantRef(), "constant", first);
      initializer->replaceAllUsesWith(constant);
      graph.removeInitializer(*initializer);
      any = true;
    }
  });
  return any;
}

llvm::Expected<bool> constantsToInitializers(TransformedModel& transformed) {
  return moveToInitializers(transformed.graph());
}

llvm::Expected<bool> constantsToInputs(TransformedModel& transformed) {
  Graph& graph = transformed.graph();
  // Function bodies do not exist in that version.
  if (!transformed.model->functions.empty())
    return false;
  moveToInitializers(graph);
  for (Value* initializer : initializersOf(graph)) {
    const std::string name = initializer->name().str();
    graph.rename(*initializer, graph.freshName("listed"));
    Value& input = graph.addInput(name, initializer->type());
    graph.setInputDefault(input, initializer->constantRef());
    initializer->replaceAllUsesWith(input);
    graph.removeInitializer(*initializer);
  }
  transformed.model->irVersion = 3;
  return true;
}

llvm::Expected<bool> constantsForEachReader(TransformedModel& transformed) {
  constexpr int64_t mostElements = 64;
  bool any = false;
  forEachGraph(transformed.graph(), [&](Graph& graph) {
    for (Value* initializer : initializersOf(graph)) {
      const TensorRef data = initializer->constantRef();
      if (data->elementCount() > mostElements)
        continue;
      bool isFirst = true;
      for (Use& use : llvm::make_early_inc_range(initializer->uses())) {
        if (!isFirst) {
          use.user().setOperand(use.operandIndex(), &graph.addConstant("copy", data));
          any = true;
        }
        isFirst = false;
      }
    }
  });
  return any;
}

} // namespace kvopt
