// The axis of an input that provides each extent.
#include "passes/targets/blocks/input_extents.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::targets {
using namespace ir;

llvm::ArrayRef<Dim> extentsRead(const Node& shape) {
  const TensorType& type = shape.operand(0)->type();
  if (!type.hasRank())
    return {};
  const auto rank = static_cast<int64_t>(type.rank());
  auto clamp = [&](int64_t position) {
    return std::clamp<int64_t>(position < 0 ? position + rank : position, 0, rank);
  };
  const int64_t start = clamp(shape.intAttr("start", 0));
  const int64_t end = std::max(start, clamp(shape.intAttr("end", rank)));
  return type.shape().slice(static_cast<size_t>(start), static_cast<size_t>(end - start));
}

InputExtents::InputExtents(const Graph& graph, const llvm::StringSet<>& leftOut) {
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    if (leftOut.contains(input->name()) || !input->type().hasRank())
      continue;
    for (unsigned axis = 0; axis < input->type().rank(); ++axis)
      if (const Dim& extent = input->type().dim(axis); !extent.isUnknown() && !extent.value())
        axes.try_emplace(extent.str(), InputAxis{input.get(), axis});
  }
}

std::optional<InputExtents::InputAxis> InputExtents::find(const Dim& extent) const {
  const auto found = axes.find(extent.str());
  if (extent.isUnknown() || found == axes.end())
    return std::nullopt;
  return found->second;
}

Value* InputExtents::spell(Node& shape) const {
  Graph& where = shape.graph();
  const llvm::ArrayRef<Dim> extents = extentsRead(shape);
  if (extents.empty() ||
      llvm::any_of(extents, [&](const Dim& extent) { return !extent.value() && !has(extent); }))
    return nullptr;
  llvm::SmallVector<Value*, 4> parts;
  for (const Dim& extent : extents) {
    if (const auto fixed = extent.value()) {
      parts.push_back(&where.addConstant("extent", int64Tensor({*fixed})));
      continue;
    }
    const InputAxis source = *find(extent);
    Node& all = where.createFresh("Shape", {source.input}, 1, &shape, "extents");
    Value& axis = where.addConstant("axis", int64Tensor({source.axis}));
    parts.push_back(
        &where.createFresh("Gather", {&all.result(), &axis}, 1, &shape, "extent").result());
  }
  Node& joined = where.createFresh("Concat", parts, 1, &shape, "extents");
  joined.setAttribute("axis", Attribute::ofInt(0));
  return &joined.result();
}

} // namespace kvopt::targets
