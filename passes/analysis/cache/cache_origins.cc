// The forward walk.
#include "passes/analysis/cache/cache_origins.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "passes/analysis/movement/uniform_value.h"

#include "llvm/ADT/StringSwitch.h"

#include <set>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Whether the operator mixes rows, or its results are no longer rows of its operand.
bool endsRows(const Node& node) {
  if (node.op() == OpName("ai.kvopt::AppendRows"))
    return false;
  if (!node.op().isOnnx())
    return !movementKind(node);
  if (elementFunction(node) == ElementFunction::Comparison)
    return true;
  return llvm::StringSwitch<bool>(node.op().type())
      .Cases("Shape", "Size", "Softmax", "LogSoftmax", "Attention", "Einsum", "Gemm", true)
      .Cases("Conv", "ConvTranspose", "If", "Loop", "Scan", "CumSum", "TopK", true)
      .Cases("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", true)
      .Cases("MaxPool", "AveragePool", "GlobalAveragePool", "LSTM", "GRU", "RNN", true)
      .Cases("ArgMax", "ConstantOfShape", true)
      .Default(false);
}

/// Whether the type is one of numbers, or of codes.
bool mayHoldRows(ElementType element) {
  return isFloatingPoint(element) || element == ElementType::Int8 || element == ElementType::UInt8;
}

} // namespace

bool mayUpdateCache(const Node& node) {
  if (node.op() == OpName("ai.kvopt::AppendRows"))
    return true;
  return node.op().isOnnx() &&
         llvm::StringSwitch<bool>(node.op().type())
             .Cases("Concat", "ScatterND", "ScatterElements", "TensorScatter", true)
             .Default(false);
}

bool isAttentionOperator(const Node& node) {
  llvm::StringRef type = node.op().type();
  return (node.op().isOnnx() && type == "Attention") ||
         (node.op().domain() == "com.microsoft" &&
          (type == "Attention" || type == "MultiHeadAttention" || type == "GroupQueryAttention" ||
           type == "DecoderMaskedMultiHeadAttention" || type == "DecoderMaskedSelfAttention" ||
           type == "PagedAttention"));
}

llvm::ArrayRef<std::pair<unsigned, unsigned>> fusedCaches(const Node& node) {
  using Pair = std::pair<unsigned, unsigned>;
  static constexpr Pair onnx[] = {{4, 1}, {5, 2}};
  static constexpr Pair grouped[] = {{3, 1}, {4, 2}};
  static constexpr Pair multiHead[] = {{6, 1}, {7, 2}};
  static constexpr Pair masked[] = {{5, 1}, {6, 2}};
  static constexpr Pair stacked[] = {{4, 1}};
  llvm::StringRef type = node.op().type();
  // Blocks of a pool are not rows of a cache: a table locates them.
  if (!isAttentionOperator(node) || type == "PagedAttention")
    return {};
  if (node.op().isOnnx())
    return onnx;
  if (type == "GroupQueryAttention")
    return grouped;
  if (type == "MultiHeadAttention")
    return multiHead;
  if (type == "DecoderMaskedMultiHeadAttention")
    return masked;
  return stacked;
}

CacheOrigins::CacheOrigins(const Graph& graph) : followed(graph) {
  for (const auto& input : graph.inputs())
    begin(*input);
  if (origins.empty())
    return;
  walk(graph);
}

void CacheOrigins::begin(const Value& input) {
  const TensorType& type = input.type();
  if (mayHoldRows(type.elementType()) && (!type.hasRank() || type.rank() >= 3))
    origins[&input] = {&input, nullptr};
}

void CacheOrigins::follow(llvm::ArrayRef<const Value*> inputs, llvm::ArrayRef<const Node*> nodes) {
  const auto standsFirst = [](const Node* a, const Node* b) { return a->comesBefore(*b); };
  std::set<const Node*, decltype(standsFirst)> pending(standsFirst);
  // The position of a reader in a subgraph is that of the node that holds the subgraph.
  const auto enqueue = [&](const Node* node) {
    while (&node->graph() != &followed)
      node = node->graph().parentNode();
    pending.insert(node);
  };
  const auto enqueueReaders = [&](const Value& value) {
    for (const Use& use : value.uses())
      enqueue(&use.user());
  };
  for (const Value* input : inputs) {
    begin(*input);
    enqueueReaders(*input);
  }
  for (const Node* node : nodes)
    enqueue(node);
  while (!pending.empty()) {
    const Node* node = *pending.begin();
    pending.erase(pending.begin());
    if (revisit(*node))
      for (const Value& result : node->results())
        enqueueReaders(result);
  }
}

/// Returns whether the known origins of the results changed.
bool CacheOrigins::revisit(const Node& node) {
  llvm::SmallVector<std::optional<CacheOrigin>, 4> before;
  for (const Value& result : node.results()) {
    const CacheOrigin* origin = find(result);
    before.push_back(origin ? std::optional(*origin) : std::nullopt);
    forget(result);
  }
  visit(node);
  for (const Graph* subgraph : node.subgraphs())
    for (const Node& inner : subgraph->nodes())
      revisit(inner);
  for (size_t i = 0; i < before.size(); ++i) {
    const CacheOrigin* after = find(node.result(static_cast<unsigned>(i)));
    if (after ? before[i] != *after : before[i].has_value())
      return true;
  }
  return false;
}

void CacheOrigins::walk(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    visit(node);
    for (const Graph* subgraph : node.subgraphs())
      walk(*subgraph);
  }
}

/// Whether the node selects elements of a cache or of a computed value that is not one number
/// everywhere: Where(onehot, new, past).
bool CacheOrigins::selectsNewRows(const Node& node) const {
  if (node.op() != "Where")
    return false;
  auto isNew = [&](const Value* value) {
    return value && !find(*value) && !value->constant() && !uniformValue(*value);
  };
  return isNew(node.operand(1)) != isNew(node.operand(2));
}

void CacheOrigins::visit(const Node& node) {
  for (const auto& [operand, result] : fusedCaches(node)) {
    const Value* past = node.operand(operand);
    const CacheOrigin* origin = past ? find(*past) : nullptr;
    if (origin && result < node.results().size() && !node.result(result).isAbsent()) {
      CacheOrigin updated{origin->input, &node};
      origins[&node.result(result)] = updated;
    }
  }
  if (endsRows(node))
    return;
  std::optional<CacheOrigin> origin;
  bool isProduct = node.op() == "MatMul";
  for (const Use& use : node.operands()) {
    const CacheOrigin* from = use.value() ? find(*use.value()) : nullptr;
    if (!from)
      continue;
    if (isProduct && (!from->update || use.operandIndex() != 0 || !node.operand(1)->constant()))
      return;
    if (!origin) {
      origin = *from;
      if (use.operandIndex() == 0 && mayUpdateCache(node))
        break; // other operands are written into this one
      continue;
    }
    if (origin->input != from->input)
      origin->input = nullptr;
    if (!origin->update)
      origin->update = from->update;
  }
  if (!origin)
    return;
  if (!origin->update &&
      ((mayUpdateCache(node) && node.operands().size() > 1) || selectsNewRows(node)))
    origin->update = &node;
  for (const Value& result : node.results())
    if (mayHoldRows(result.type().elementType()) ||
        result.type().elementType() == ElementType::Undefined)
      origins[&result] = *origin;
}

} // namespace kvopt::analysis
