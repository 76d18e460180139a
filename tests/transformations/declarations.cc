// What a file declares of its values: types between, and names of extents.
#include "support/format.h"
#include "tests/transformations/transformation.h"

namespace kvopt {
using namespace ir;

namespace {

void forgetTypesBetween(Graph& graph) {
  forEachGraph(graph, [](Graph& inner) {
    for (Node& node : inner.nodes())
      for (Value& result : node.results())
        if (!result.isGraphOutput())
          result.setType({});
  });
}

/// Replaces every extent of inputs and outputs that is not fixed. False where all are.
bool replaceExtents(Graph& graph, llvm::function_ref<Dim(const Value&, unsigned, const Dim&)> by) {
  bool any = false;
  auto replaceIn = [&](Value& value) {
    if (!value.type().hasRank())
      return;
    Shape shape;
    for (unsigned axis = 0; axis < value.type().rank(); ++axis) {
      const Dim& extent = value.type().shape()[axis];
      shape.push_back(extent.value() ? extent : by(value, axis, extent));
      any |= !extent.value();
    }
    value.setType(TensorType(value.type().elementType(), shape));
  };
  for (const std::unique_ptr<Value>& input : graph.inputs())
    replaceIn(*input);
  for (Value* output : graph.outputs())
    if (!output->isGraphInput())
      replaceIn(*output);
  forgetTypesBetween(graph);
  return any;
}

} // namespace

llvm::Expected<bool> dropDeclarations(TransformedModel& transformed) {
  forgetTypesBetween(transformed.graph());
  return true;
}

llvm::Expected<bool> renameExtents(TransformedModel& transformed) {
  auto newName = [&](llvm::StringRef symbol) -> std::optional<Dim> {
    auto [entry, isNew] = transformed.renamed.try_emplace(symbol.str());
    if (isNew)
      entry->second = formatted("d{}", transformed.renamed.size());
    return Dim::symbol(entry->second);
  };
  return replaceExtents(transformed.graph(), [&](const Value&, unsigned, const Dim& extent) {
    return extent.substitute(newName);
  });
}

llvm::Expected<bool> forgetExtents(TransformedModel& transformed) {
  return replaceExtents(transformed.graph(),
                        [](const Value&, unsigned, const Dim&) { return Dim::unknown(); });
}

llvm::Expected<bool> splitExtents(TransformedModel& transformed) {
  return replaceExtents(transformed.graph(), [](const Value& value, unsigned axis, const Dim&) {
    return value.isGraphInput() ? Dim::symbol(formatted("{}_dim_{}", value.name().str(), axis))
                                : Dim::unknown();
  });
}

} // namespace kvopt
