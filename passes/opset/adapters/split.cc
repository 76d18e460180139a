// Split: the extents of the parts are an operand since 13; without them, the number of parts is
// required since 18.
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

namespace {

constexpr const char* splitAttributes[] = {"split"};

void adaptTo13(const OpsetEdit& edit) { edit.intsToOperand("split", 1); }

void adaptTo18(const OpsetEdit& edit) {
  Node& node = edit.node();
  if (!node.operand(1))
    node.setAttribute("num_outputs", Attribute::ofInt(static_cast<int64_t>(node.results().size())));
}

} // namespace

void register_split(OpsetAdapterRegistry& registry) {
  registry.add({"Split", 13, nullptr, adaptTo13, splitAttributes});
  registry.add({"Split", 18, nullptr, adaptTo18, {}});
}

} // namespace kvopt::opset
