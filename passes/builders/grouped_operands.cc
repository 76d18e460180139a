// Slices of packed rows, and the rotary operator.
#include "passes/builders/grouped_operands.h"

#include "ir/ops/contrib/group_query_operands.h"

namespace kvopt::builders {
using namespace ir;

GroupedRows groupedRows(const Node& node, int64_t width, AttentionBuilder& build) {
  Value& query = *node.operand(gqa::Query);
  if (node.operand(gqa::Key) || node.operand(gqa::Value))
    return {&query, node.operand(gqa::Key), node.operand(gqa::Value)};
  const int64_t key = node.intAttr("num_heads", 0) * width;
  const int64_t value = key + node.intAttr("kv_num_heads", 0) * width;
  return {&build.slice(query, 2, 0, key), &build.slice(query, 2, key, value),
          &build.slice(query, 2, value, 2 * value - key)};
}

Value& rotatedByNode(const Node& node, Value& heads, int64_t count, int64_t width, Value& positions,
                     AttentionBuilder& build) {
  Value& cosines = *node.operand(gqa::CosineCache);
  AttributeList attributes;
  if (node.intAttr("rotary_interleaved", 0) == 1)
    attributes.add("interleaved", 1);
  const int64_t rotary = *cosines.type().dim(1).value() * 2;
  if (rotary != width) {
    attributes.add("rotary_embedding_dim", rotary);
    attributes.add("num_heads", count);
  }
  return build.node("com.microsoft::RotaryEmbedding",
                    {heads, positions, cosines, *node.operand(gqa::SineCache)}, attributes,
                    "rotary");
}

} // namespace kvopt::builders
