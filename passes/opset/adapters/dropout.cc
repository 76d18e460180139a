// Dropout: the ratio is an operand since 12, and another operand enables it; without that it is
// disabled, as in models for inference before. Earlier versions do not define the mask then.
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

namespace {

constexpr const char* dropoutAttributes[] = {"ratio"};

std::optional<std::string> obstacleToDropout(const Node& node) {
  llvm::ArrayRef<Value> results = node.results();
  if (results.size() > 1 && !results[1].isAbsent() && !results[1].isUnused())
    return "the mask is read";
  return std::nullopt;
}

void adaptDropout(const OpsetEdit& edit) {
  Node& node = edit.node();
  if (const Attribute* ratio = node.attribute("ratio")) {
    const auto value = static_cast<double>(ratio->floatValue());
    edit.setOperand(1, edit.constant("ratio", floatScalar(ElementType::Float, value)));
    node.removeAttribute("ratio");
  }
}

} // namespace

void register_dropout(OpsetAdapterRegistry& registry) {
  registry.add({"Dropout", 12, obstacleToDropout, adaptDropout, dropoutAttributes});
}

} // namespace kvopt::opset
