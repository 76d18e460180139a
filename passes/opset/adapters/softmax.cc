// Softmax, LogSoftmax and Hardmax: since 13 they work along one axis; before, along all axes from
// `axis` on, flattened into one. The default was 1 and is -1.
//
//   before   y = Softmax<axis = a>(x)
//   after    y = Reshape<allowzero = 1>(Softmax<axis = -1>(Flatten<axis = a>(x)), Shape(x))
//
// If a is the last axis, only the attribute is written.
#include "ir/attribute_list.h"
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

namespace {

constexpr const char* softmaxAttributes[] = {"axis"};

void adaptSoftmax(const OpsetEdit& edit) {
  Node& node = edit.node();
  const Attribute* written = node.attribute("axis");
  const int64_t axis = written ? written->intValue() : 1;
  Value& x = *node.operand(0);
  node.setAttribute("axis", Attribute::ofInt(-1));
  if (axis == -1 || (x.type().hasRank() && axis + 1 == static_cast<int64_t>(x.type().rank())))
    return;
  Value& shape = edit.before("Shape", {&x}, "softmax_shape");
  Value& flat = edit.before("Flatten", {&x}, "softmax_rows", attrs({{"axis", axis}}));
  edit.setOperand(0, flat);
  // An extent of 0 is valid.
  edit.after("Reshape", {&shape}, "softmax", attrs({{"allowzero", 1}}));
}

} // namespace

void register_softmax(OpsetAdapterRegistry& registry) {
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"})
    registry.add({op, 13, nullptr, adaptSoftmax, softmaxAttributes});
}

} // namespace kvopt::opset
