// GroupNormalization: since 21, scale and bias are given per channel, before per group; since 21 it
// also computes in f32 by default.
//
//   before   GroupNormalization<num_groups = G>(x, scale [G], bias [G])
//   after    GroupNormalization<num_groups = G>(x, perChannel(scale), perChannel(bias))
//            perChannel(v) = Reshape(Expand(Reshape(v, [-1,1]), [1, channels / G]), [-1])
#include "ir/attribute_list.h"
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

namespace {

constexpr const char* groupNormalizationAttributes[] = {"num_groups"};

std::optional<std::string> obstacleToGroupNormalization(const Node& node) {
  if (node.intAttr("num_groups", 0) <= 0)
    return "no number of groups";
  if (!isFloatingPoint(node.operand(0)->type().elementType()))
    return "an element type that is not known to be floating-point";
  return std::nullopt;
}

void adaptGroupNormalization(const OpsetEdit& edit) {
  Node& node = edit.node();
  Value& x = *node.operand(0);
  Value& channels = edit.before("Shape", {&x}, "channels", attrs({{"start", 1}, {"end", 2}}));
  Value& groups = edit.constant("groups", int64Tensor({node.intAttr("num_groups", 1)}));
  Value& inGroup = edit.before("Div", {&channels, &groups}, "channels_in_group");
  Value& one = edit.constant("one", int64Tensor({1}));
  Value& column = edit.constant("column", int64Tensor({-1, 1}));
  Value& flat = edit.constant("flat", int64Tensor({-1}));
  Value& shape = edit.before("Concat", {&one, &inGroup}, "repeats", attrs({{"axis", 0}}));
  for (unsigned operand : {1u, 2u}) {
    Value& perGroup = edit.before("Reshape", {node.operand(operand), &column}, "per_group");
    Value& repeated = edit.before("Expand", {&perGroup, &shape}, "per_channel");
    edit.setOperand(operand, edit.before("Reshape", {&repeated, &flat}, "per_channel"));
  }
  const ElementType element = x.type().elementType();
  if (element != ElementType::Float)
    node.setAttribute("stash_type", Attribute::ofInt(static_cast<int64_t>(element)));
}

} // namespace

void register_group_normalization(OpsetAdapterRegistry& registry) {
  registry.add({"GroupNormalization", 21, obstacleToGroupNormalization, adaptGroupNormalization,
                groupNormalizationAttributes});
}

} // namespace kvopt::opset
