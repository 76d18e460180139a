// TopK: the number of elements is an operand since 10.
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

namespace {

constexpr const char* topKAttributes[] = {"k"};

std::optional<std::string> obstacleToTopK(const Node& node) {
  const Attribute* count = node.attribute("k");
  if (!count || count->kind() != AttributeKind::Int)
    return "no attribute 'k'";
  return std::nullopt;
}

void adaptTopK(const OpsetEdit& edit) {
  Node& node = edit.node();
  edit.setOperand(1, edit.constant("k", int64Tensor({node.attribute("k")->intValue()})));
  node.removeAttribute("k");
}

} // namespace

void register_top_k(OpsetAdapterRegistry& registry) {
  registry.add({"TopK", 10, obstacleToTopK, adaptTopK, topKAttributes});
}

} // namespace kvopt::opset
