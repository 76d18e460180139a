// A copy, cut at its boundary.
#include "passes/targets/blocks/submodel.h"

#include "ir/manifest/manifest.h"
#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "passes/targets/support/kvopt_domain.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace ir;

namespace {

/// Values of the copy that are to have a name in the end.
struct Named {
  Value* value;
  std::string name;
};

/// Gives each value its name; another value that has it now is renamed.
void giveNames(Graph& graph, llvm::ArrayRef<Named> named) {
  for (const Named& each : named)
    if (each.value->name() != each.name)
      graph.rename(*each.value, graph.freshName("renamed"));
  for (const Named& each : named) {
    if (each.value->name() == each.name)
      continue;
    if (Value* other = graph.findValue(each.name))
      graph.rename(*other, graph.freshName(each.name));
    graph.rename(*each.value, each.name);
  }
}

void cut(Graph& graph, const SubmodelBoundary& boundary) {
  while (!graph.outputs().empty())
    graph.removeOutput(static_cast<unsigned>(graph.outputs().size()) - 1);
  std::vector<Named> named;
  for (const BoundaryValue& output : boundary.outputs)
    named.push_back({graph.findValue(output.value->name()), output.name});
  for (const BoundaryValue& input : boundary.inputs) {
    Value* value = graph.findValue(input.value->name());
    if (!value->isGraphInput()) {
      Value& given = graph.addInput(graph.freshName("given"), input.value->type());
      value->replaceAllUsesWith(given);
      value = &given;
    }
    named.push_back({value, input.name});
  }
  for (size_t i = 0; i < boundary.outputs.size(); ++i)
    graph.addOutput(*named[i].value);
  graph.eraseDeadNodes();
  llvm::SmallVector<Value*, 16> unread;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->isUnused())
      unread.push_back(input.get());
  llvm::erase_if(named, [&](const Named& each) { return llvm::is_contained(unread, each.value); });
  for (Value* input : unread)
    graph.removeInput(*input);
  giveNames(graph, named);
}

} // namespace

llvm::Expected<std::unique_ptr<Model>> submodelOf(const Model& model,
                                                  const SubmodelBoundary& boundary) {
  auto copy = copySharingConstants(model);
  if (!copy)
    return copy;
  (*copy)->markEdited();
  (*copy)->removeMetadata(manifestKey);
  cut((*copy)->graph(), boundary);
  dropKvoptDomain(**copy, model.irVersion);
  if (llvm::Error error = inferShapes((*copy)->graph()))
    return error;
  return copy;
}

} // namespace kvopt::targets
