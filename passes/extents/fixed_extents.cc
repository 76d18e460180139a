// Joined extents, and the nodes that fix them.
#include "passes/extents/fixed_extents.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::extents {
using namespace ir;

namespace {

bool hasExtent(const Value* value, const Dim& extent) {
  return value && value->type().hasRank() &&
         llvm::any_of(value->type().shape(),
                      [&](const Dim& other) { return other.isKnownEqual(extent); });
}

/// The first node whose operand has the extent `symbol`, and whose result has `value` instead.
const Node* nodeThatFixes(const Graph& graph, const Dim& symbol, int64_t value) {
  for (const Node& node : graph.nodes())
    if ((node.is("Reshape") || node.is("Expand")) && hasExtent(node.operand(0), symbol) &&
        !hasExtent(&node.result(), symbol) && hasExtent(&node.result(), Dim::fixed(value)) &&
        node.operand(1) && node.operand(1)->constant())
      return &node;
  return nullptr;
}

} // namespace

std::string FixedExtent::text() const {
  return node ? formatted("{} is {}: {} fixes it", symbol, value, node->describe())
              : formatted("{} is {}", symbol, value);
}

llvm::SmallVector<FixedExtent, 1> fixedExtents(const Graph& graph) {
  llvm::SmallVector<FixedExtent, 1> found;
  for (const Node& node : graph.nodes()) {
    if (!node.is("Concat") || node.operands().size() != 2 || !node.operand(0) || !node.operand(1) ||
        !node.operand(0)->isGraphInput())
      continue;
    const TensorType& past = node.operand(0)->type();
    const TensorType& rows = node.operand(1)->type();
    if (!past.hasRank() || !rows.hasRank() || past.rank() != rows.rank())
      continue;
    const auto joined = normalizedAxis(node.intAttr("axis", 0), past.rank());
    for (unsigned axis = 0; joined && axis < past.rank(); ++axis) {
      const Dim& extent = past.shape()[axis];
      const auto value = rows.shape()[axis].value();
      const auto symbols = extent.symbols();
      if (axis == *joined || !value || symbols.size() != 1 ||
          !extent.isKnownEqual(Dim::symbol(symbols.front())) ||
          llvm::any_of(found,
                       [&](const FixedExtent& known) { return known.symbol == symbols.front(); }))
        continue;
      found.push_back({symbols.front(), *value, axis, nodeThatFixes(graph, extent, *value)});
    }
  }
  return found;
}

void fixSymbols(Graph& graph, llvm::ArrayRef<FixedExtent> fixed) {
  const auto valueOf = [&](llvm::StringRef symbol) -> std::optional<Dim> {
    const auto* known =
        llvm::find_if(fixed, [&](const FixedExtent& extent) { return extent.symbol == symbol; });
    return known == fixed.end() ? std::nullopt : std::optional(Dim::fixed(known->value));
  };
  const auto fixIn = [&](Value& value) {
    if (!value.type().hasRank())
      return;
    Shape shape;
    for (const Dim& extent : value.type().shape())
      shape.push_back(extent.isUnknown() || extent.value() ? extent : extent.substitute(valueOf));
    value.setType(TensorType(value.type().elementType(), std::move(shape)));
  };
  forEachGraph(graph, [&](Graph& visited) {
    for (const std::unique_ptr<Value>& input : visited.inputs())
      fixIn(*input);
    for (Node& node : visited.nodes())
      for (Value& result : node.results())
        fixIn(result);
  });
}

} // namespace kvopt::extents
