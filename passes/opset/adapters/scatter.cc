// Scatter was renamed ScatterElements in 11.
#include "ir/attribute_list.h"
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

namespace {

void adaptScatter(const OpsetEdit& edit) {
  Node& node = edit.node();
  llvm::SmallVector<Value*, 3> operands;
  for (const Use& use : node.operands())
    operands.push_back(use.value());
  Value& result = edit.before("ScatterElements", operands, "scattered", cloneAttributes(node));
  result.producer()->setName(node.name().str());
  result.setType(node.result().type());
  node.result().replaceAllUsesWith(result);
  node.graph().erase(node);
}

} // namespace

void register_scatter(OpsetAdapterRegistry& registry) {
  registry.add({"Scatter", 11, nullptr, adaptScatter, {}});
}

} // namespace kvopt::opset
