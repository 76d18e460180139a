// Scatter is called ScatterElements since 11.
#include "passes/opset/opset_adapter.h"
#include "passes/pattern/rewriter.h"

namespace kvopt::opset {
using namespace ir;
using namespace pattern;

namespace {

void adapt(const OpsetEdit& edit) {
  Node& node = edit.node();
  llvm::SmallVector<Value*, 3> operands;
  for (const Use& use : node.operands())
    operands.push_back(use.value());
  std::vector<NamedAttribute> attributes = clonedAttributes(node);
  Value& result = edit.before("ScatterElements", operands, "scattered", std::move(attributes));
  result.producer()->setName(node.name().str());
  result.setType(node.result().type());
  node.result().replaceAllUsesWith(result);
  node.graph().erase(node);
}

} // namespace

void register_scatter(OpsetAdapterRegistry& registry) {
  registry.add({"Scatter", 11, nullptr, adapt, {}});
}

} // namespace kvopt::opset
