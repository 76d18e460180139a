// Names without meaning.
#include "support/format.h"
#include "tests/transformations/transformation.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt {
using namespace ir;

namespace {

/// Names that no value has, in an order that says nothing.
class NewNames {
public:
  explicit NewNames(TransformedModel& transformed) : model(transformed) {}
  std::string next() { return formatted("v{:x}_{}", model.below(0xFFFFFF), count++); }

private:
  TransformedModel& model;
  size_t count = 0;
};

} // namespace

llvm::Expected<bool> scrambleNames(TransformedModel& transformed) {
  NewNames names(transformed);
  forEachGraph(transformed.graph(), [&](Graph& graph) {
    graph.setName("g");
    const bool isMain = !graph.parentNode();
    for (const std::unique_ptr<Value>& initializer : graph.initializers())
      if (!initializer->isGraphOutput())
        graph.rename(*initializer, names.next());
    for (Node& node : graph.nodes()) {
      node.setName("");
      for (Value& result : node.results())
        if (!result.isAbsent() && !(isMain && result.isGraphOutput()))
          graph.rename(result, names.next());
    }
  });
  return true;
}

llvm::Expected<bool> scrambleInterface(TransformedModel& transformed) {
  Graph& graph = transformed.graph();
  NewNames names(transformed);
  llvm::SmallVector<Value*, 16> inputs;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    inputs.push_back(input.get());
  llvm::SmallVector<Value*, 16> outputs(graph.outputs().begin(), graph.outputs().end());
  // An output that is an input keeps its name, which is both.
  for (Value* input : inputs)
    if (input->isGraphOutput())
      return false;
  std::shuffle(inputs.begin(), inputs.end(), transformed.random);
  for (Value* input : inputs) {
    const std::string before = input->name().str();
    Value& copy = graph.addInput(names.next(), input->type());
    if (input->initializer())
      graph.setInputDefault(copy, input->initializer());
    input->replaceAllUsesWith(copy);
    graph.removeInput(*input);
    transformed.renamed[before] = copy.name().str();
  }
  for (Value* output : outputs) {
    const std::string before = output->name().str();
    if (transformed.renamed.count(before))
      continue;
    graph.rename(*output, names.next());
    transformed.renamed[before] = output->name().str();
  }
  std::shuffle(outputs.begin(), outputs.end(), transformed.random);
  for (unsigned slot = 0; slot < outputs.size(); ++slot)
    graph.setOutput(slot, *outputs[slot]);
  return true;
}

} // namespace kvopt
