// Replacement of sequences by their tensors.
#include "ir/onnx/sequences.h"

#include "ir/attribute_list.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {

namespace {

/// The node that constructs a sequence from tensors; null if another operator produces it.
const Node* listOf(const Value* sequence) {
  const Node* node = sequence ? sequence->producer() : nullptr;
  const bool isList = node && node->is("SequenceConstruct") && !node->operands().empty() &&
                      llvm::all_of(node->operands(), [](const Use& use) { return use.value(); });
  return isList ? node : nullptr;
}

/// Index that SequenceAt reads, if it is constant and within the list.
std::optional<unsigned> placeIn(const Node& list, const Value* place) {
  const TensorData* constant = place ? place->constant() : nullptr;
  const auto number = constant ? integerValues(*constant, 1) : std::nullopt;
  if (!number || number->size() != 1)
    return std::nullopt;
  const auto count = static_cast<int64_t>(list.operands().size());
  const int64_t index = number->front() < 0 ? number->front() + count : number->front();
  return index >= 0 && index < count ? std::optional(static_cast<unsigned>(index)) : std::nullopt;
}

/// The tensor with a new axis of extent 1 at `axis`.
Value& withAxis(Graph& graph, Value& tensor, int64_t axis, Node& before) {
  if (graph.opsetVersion() >= 13) {
    Value& axes = graph.addConstant("axes", int64Tensor({axis}));
    return graph.createFresh("Unsqueeze", {&tensor, &axes}, 1, &before).result();
  }
  Node& node = graph.createFresh("Unsqueeze", {&tensor}, 1, &before);
  node.setAttribute("axes", PlainAttribute("axes", std::vector<int64_t>{axis}).attribute());
  return node.result();
}

void takePlace(Graph& graph, Node& replaced, Value& tensor) {
  Value& result = replaced.result();
  const std::string name = result.name().str();
  const bool isOutput = result.isGraphOutput();
  result.replaceAllUsesWith(tensor);
  graph.erase(replaced);
  if (isOutput)
    graph.rename(tensor, name);
}

void join(Graph& graph, Node& node, const Node& list) {
  const int64_t axis = node.intAttr("axis", 0);
  const bool isStacked = node.intAttr("new_axis", 0) != 0;
  llvm::SmallVector<Value*, 4> tensors;
  for (const Use& use : list.operands())
    tensors.push_back(isStacked ? &withAxis(graph, *use.value(), axis, node) : use.value());
  Node& concat = graph.createFresh("Concat", tensors, 1, &node);
  concat.setAttribute("axis", PlainAttribute("axis", axis).attribute());
  concat.setName(node.name().str());
  concat.result().setType(node.result().type());
  takePlace(graph, node, concat.result());
}

} // namespace

void joinSequences(Graph& graph) {
  llvm::SmallVector<Node*, 8> lists;
  for (Node& node : llvm::make_early_inc_range(graph.nodes())) {
    for (Graph* inner : node.subgraphs())
      joinSequences(*inner);
    if (node.is("SequenceConstruct"))
      lists.push_back(&node);
    const bool isRead = node.is("ConcatFromSequence") || node.is("SequenceAt");
    const Node* list = isRead && !node.operands().empty() ? listOf(node.operand(0)) : nullptr;
    if (!list || node.results().size() != 1 || &list->graph() != &graph)
      continue;
    if (node.is("ConcatFromSequence")) {
      join(graph, node, *list);
    } else if (const auto place = placeIn(*list, node.operand(1));
               place && !node.result().isGraphOutput()) {
      takePlace(graph, node, *list->operand(*place));
    }
  }
  for (Node* list : llvm::reverse(lists))
    if (list->isUnused())
      graph.erase(*list);
}

} // namespace kvopt::ir
