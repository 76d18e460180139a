// Follows the lengths of GroupQueryAttention back to inputs.
#include "passes/analysis/cache/row_lengths.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Operand of GroupQueryAttention with the tokens of each batch row, less one.
constexpr unsigned lengthsOperand = 5;

bool dependsOnInput(const Value& value) {
  llvm::SetVector<const Value*> reached;
  reached.insert(&value);
  for (size_t i = 0; i < reached.size(); ++i) {
    if (reached[i]->isGraphInput() && !reached[i]->initializer())
      return true;
    const Node* producer = reached[i]->producer();
    if (!producer || producer->is("Shape") || producer->is("Size"))
      continue;
    for (const Use& use : producer->operands())
      if (use.value())
        reached.insert(use.value());
  }
  return false;
}

} // namespace

bool countsRowsByInput(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.is("com.microsoft::GroupQueryAttention") && node.operands().size() > lengthsOperand &&
        node.operand(lengthsOperand) && dependsOnInput(*node.operand(lengthsOperand)))
      return true;
    for (const Graph* nested : node.subgraphs())
      if (countsRowsByInput(*nested))
        return true;
  }
  return false;
}

} // namespace kvopt::analysis
