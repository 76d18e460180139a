// Attention: since 24, a mask with fewer columns than keys hides the rest; before, a single column
// applied to all keys.
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

namespace {

std::optional<std::string> obstacleToAttention(const Node& node) {
  const Value* mask = node.operand(3);
  if (!mask)
    return std::nullopt;
  const TensorType& type = mask->type();
  if (type.hasRank() && type.rank() != 0 && type.dim(-1).value() != 1 && !type.dim(-1).isUnknown())
    return std::nullopt;
  return "a mask that is not known to have a column for every key";
}

void adaptAttention(const OpsetEdit&) {}

} // namespace

void register_attention(OpsetAdapterRegistry& registry) {
  registry.add({"Attention", 24, obstacleToAttention, adaptAttention, {}});
}

} // namespace kvopt::opset
