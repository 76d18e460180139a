// Search for operators and tables that limit steps.
#include "driver/claims/step_claims.h"

#include "ir/manifest/documented_inputs.h"
#include "ir/op.h"
#include "ir/ops/kvopt/cache_operator.h"
#include "support/string_ends.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace ir;

namespace {

constexpr const char* groupedAttention = "com.microsoft::GroupQueryAttention";

/// The number of new tokens that token ids or their embeddings declare.
Dim newTokensOf(const Graph& graph, const Manifest& manifest) {
  for (const Value* tokens : tokenInputs(graph, manifest.inputs))
    if (const TensorType& type = tokens->type();
        type.hasRank() && (type.rank() == 1 || type.rank() == 2))
      return type.dim(-1);
  const Value* rows = graph.findValue("inputs_embeds");
  return rows && rows->type().hasRank() && rows->type().rank() == 3 ? rows->type().dim(1)
                                                                    : Dim::unknown();
}

/// Applies `visit` to each node of the model until it returns true.
bool anyNode(const Model& model, llvm::function_ref<bool(const Node&)> visit) {
  bool found = false;
  forEachGraph(const_cast<Graph&>(model.graph()), // NOLINT: only read
               [&](const Graph& graph) { found |= llvm::any_of(graph.nodes(), visit); });
  return found;
}

/// Operands of attention before this one are queries, keys and values, whatever the operator.
constexpr unsigned firstOperandBesideRows = 3;

/// The mask of an attention operator; null for other operators.
const Value* attentionMask(const Node& node) {
  const OpDef* definition = node.definition();
  if (!definition)
    return nullptr;
  for (unsigned i = 0; i < definition->operands.size(); ++i)
    if (llvm::StringRef name = definition->operands[i].name; name == "mask" || name == "attn_mask")
      return node.operand(i);
  return nullptr;
}

/// Whether the mask may hide keys: a constant 0 is equivalent to no mask.
bool mayHide(const Value* mask) {
  if (!mask)
    return false;
  const TensorData* data = mask->constant();
  return !(data && isFloatingPoint(data->elementType()) && scalarValue(*data) == 0.0);
}

} // namespace

std::optional<int64_t> stepLimitOf(const Graph& graph, const Manifest& manifest) {
  const Dim tokens = newTokensOf(graph, manifest);
  std::optional<int64_t> limit;
  for (const Node& node : graph.nodes()) {
    if (!node.is("Gather") || !node.result().hasUses())
      continue;
    const TensorData* table = node.operand(0)->constant();
    const auto index = node.operand(1)->knownIntegers();
    const bool isLookUp = table && table->shape().size() == 1 && index && index->size() == 1 &&
                          index->front().isKnownEqual(tokens);
    if (isLookUp)
      limit = std::min(limit.value_or(INT64_MAX), table->elementCount() - 1);
  }
  return limit;
}

bool readsElements(const Value& input) {
  return input.isGraphOutput() || llvm::any_of(input.uses(), [](const Use& use) {
           return !use.user().is("Shape") && !use.user().is("Size");
         });
}

bool isAttention(const Node& node) {
  const llvm::StringRef type = node.op().type();
  return endsWith(type, "Sdpa") || endsWith(type, "Attention");
}

size_t attentionsHiddenBy(const Value& input) {
  llvm::SmallVector<const Value*, 16> pending{&input};
  llvm::DenseSet<const Value*> reached{&input};
  llvm::DenseSet<const Node*> hidden;
  const auto reach = [&](const Value& value) {
    if (reached.insert(&value).second)
      pending.push_back(&value);
  };
  while (!pending.empty()) {
    const Value* value = pending.pop_back_val();
    for (const Use& use : value->uses()) {
      const Node& node = use.user();
      if (node.is("Shape") || node.is("Size"))
        continue;
      if (isAttention(node) && use.operandIndex() >= firstOperandBesideRows)
        hidden.insert(&node);
      for (const Node* each = &node; each; each = each->graph().parentNode())
        for (const Value& result : each->results())
          reach(result);
    }
  }
  return hidden.size();
}

size_t attentionCount(const Model& model) {
  size_t count = 0;
  anyNode(model, [&](const Node& node) {
    count += isAttention(node) ? 1 : 0;
    return false;
  });
  return count;
}

bool hasGroupedAttention(const Model& model) {
  return anyNode(model,
                 [](const Node& node) { return node.is(groupedAttention) && node.operand(3); });
}

bool hasBiasedGroupedAttention(const Model& model) {
  constexpr unsigned bias = 10;
  return anyNode(model, [](const Node& node) {
    return node.is(groupedAttention) && node.operand(3) && node.operand(bias);
  });
}

bool changesHiddenRows(const Model& model) {
  const bool hasRings = anyNode(model, [](const Node& node) {
    return node.is("TensorScatter") && node.stringAttr("mode", "linear") == "circular";
  });
  return anyNode(model, [&](const Node& node) {
    const auto op = CacheOperator::of(node);
    const bool isRing = (op && op->isRing()) || hasRings;
    const bool hidesItself = isRing || node.intAttr("causal", 0) != 0 ||
                             node.intAttr("is_causal", 0) != 0 || node.intAttr("window", 0) != 0;
    return hidesItself && mayHide(attentionMask(node));
  });
}

} // namespace kvopt::driver
