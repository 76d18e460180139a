// A copy that ends at its boundary.
#include "passes/targets/blocks/submodel.h"

#include "ir/manifest/manifest.h"
#include "ir/shapes/shape_inference.h"
#include "passes/targets/support/kvopt_domain.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

namespace kvopt::targets {
using namespace ir;

namespace {

/// Final names of values of the copy.
struct Named {
  Value* value;
  std::string name;
};

/// Gives each value its name; any other value with that name is renamed.
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

/// Turns a copy of the part between the boundary's values into a graph with those inputs and
/// outputs.
void setBoundary(Graph& graph, const SubmodelBoundary& boundary) {
  while (!graph.outputs().empty())
    graph.removeOutput(static_cast<unsigned>(graph.outputs().size()) - 1);
  std::vector<Named> named;
  for (const BoundaryValue& output : boundary.outputs)
    named.push_back({graph.findValue(output.value->name()), output.name});
  for (const BoundaryValue& input : boundary.inputs) {
    Value* value = graph.findValue(input.value->name());
    if (!value)
      continue; // an input of the model that is unused in the part
    if (!input.value->isGraphInput()) {
      value->setType(input.value->type());
      value->setSource(nullptr);
    }
    named.push_back({value, input.name});
  }
  for (size_t i = 0; i < boundary.outputs.size(); ++i)
    graph.addOutput(*named[i].value);
  graph.eraseDeadNodes();
  llvm::SmallSetVector<Value*, 16> unread;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->isUnused())
      unread.insert(input.get());
  llvm::erase_if(named, [&](const Named& each) { return unread.contains(each.value); });
  for (Value* input : unread)
    graph.removeInput(*input);
  giveNames(graph, named);
}

} // namespace

llvm::Expected<SubmodelCutter> SubmodelCutter::create(const Model& model) {
  auto copier = PartCopier::create(model, {manifestKey});
  if (!copier)
    return copier.takeError();
  return SubmodelCutter(model, std::move(*copier));
}

llvm::Expected<std::unique_ptr<Model>> SubmodelCutter::cut(const SubmodelBoundary& boundary) const {
  GraphPart part;
  for (const BoundaryValue& input : boundary.inputs)
    part.inputs.push_back(input.value);
  for (const BoundaryValue& output : boundary.outputs)
    part.outputs.push_back(output.value);
  auto copy = copier.copy(part);
  if (!copy)
    return copy;
  (*copy)->markEdited();
  setBoundary((*copy)->graph(), boundary);
  dropKvoptDomain(**copy, model->irVersion);
  if (llvm::Error error = inferShapes((*copy)->graph()))
    return error;
  return copy;
}

} // namespace kvopt::targets
