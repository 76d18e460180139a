// Caches rows as attention reads them, not as they are before a function that each step computes
// anew for all of them: a rotation by their positions, a normalization, a scale of each head.
//
//   before   present_key = Concat<2>(past_key, k)      o = ai.kvopt.Sdpa(q, f(present_key), …)
//   after    present_key = Concat<2>(past_key, f(k))   o = ai.kvopt.Sdpa(q, present_key, …)
//
// f must treat rows apart (passes/analysis/tokens/row_function.h); where it counts them, it counts
// the new ones from the number of those before them. What the cache holds is then not what it held
// before: the manifest says `"rows": "attended"`.
#include "ir/attribute_list.h"
#include "ir/movement.h"
#include "ir/op_name.h"
#include "ir/shapes/shape_inference.h"
#include "passes/builders/attention_builder.h"
#include "passes/pass.h"
#include "passes/rows/row_function_writer.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace builders;
using namespace rows;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* cacheAttendedRowsName = "cache-attended-rows";

/// A cache, and what attention reads of it.
struct AttendedCache {
  Node* join = nullptr; ///< Concat(past, new rows), whose result is the present
  unsigned axis = 0;
  Value* attended = nullptr;
  RowFunction function; ///< that makes `attended` of the present
  /// Axis i of the cache is axis order[i] of what is read; empty where they are the same.
  std::vector<int64_t> order;
};

/// The input whose rows these are, converted or not; null if they are no input's.
Value* inputBehind(Value& rows) {
  Node* cast = rows.producer();
  Value* input = cast && cast->is("Cast") ? cast->operand(0) : &rows;
  return input && input->isGraphInput() && !input->constant() && !input->graph().parentNode()
             ? input
             : nullptr;
}

/// Whether the use converts a value to an output.
bool isConvertedOutput(const Use& use) {
  return use.user().is("Cast") && use.user().result().isGraphOutput() &&
         !use.user().result().hasUses();
}

/// The axis along which the node joins new rows to a past that nothing else reads, with a result
/// that comes out of the model; nullopt for other nodes. Converters to float16 that keep the types
/// of inputs and outputs convert both.
std::optional<unsigned> cacheAxis(const Node& node) {
  if (!node.is("Concat") || node.operands().size() != 2 || !node.operand(0) || !node.operand(1))
    return std::nullopt;
  Value& past = *node.operand(0);
  const Value* input = inputBehind(past);
  const Value& present = node.result();
  const TensorType& type = present.type();
  const auto axis =
      type.hasRank() ? normalizedAxis(node.intAttr("axis", 0), type.rank()) : std::nullopt;
  if (!axis || !input || !isFloatingPoint(type.elementType()) || past.type().dim(*axis).value() ||
      !(present.isGraphOutput() || llvm::any_of(present.uses(), isConvertedOutput)))
    return std::nullopt;
  const auto isOnlyRead = [](const Value& value, const Node* reader) {
    return llvm::all_of(value.uses(), [&](const Use& use) {
      return &use.user() == reader || use.user().is("Shape");
    });
  };
  const auto open = llvm::count_if(type.shape(), [](const Dim& extent) { return !extent.value(); });
  const bool isOpen = open <= 2; // the rows, and the batch
  return isOpen && isOnlyRead(past, &node) &&
                 (input == &past || isOnlyRead(*input, past.producer()))
             ? axis
             : std::nullopt;
}

/// The one cache that a value is computed from; null where there is none, or where a search among
/// the nearest nodes does not tell.
Node* joinBehind(Value& value) {
  constexpr size_t mostNodes = 512;
  Node* cache = nullptr;
  llvm::SmallVector<Node*, 16> pending;
  llvm::DenseSet<Node*> seen;
  const auto visit = [&](Value* operand) {
    if (operand && operand->producer() && seen.insert(operand->producer()).second)
      pending.push_back(operand->producer());
  };
  visit(&value);
  while (!pending.empty() && seen.size() < mostNodes) {
    Node* node = pending.pop_back_val();
    if (cacheAxis(*node)) {
      if (cache)
        return nullptr;
      cache = node;
      continue;
    }
    if (!node->is("Shape"))
      for (const Use& use : node->operands())
        visit(use.value());
  }
  return pending.empty() ? cache : nullptr;
}

/// What attention reads through this operand, if that is computed of a cache.
std::optional<AttendedCache> attendedCache(Value& operand) {
  llvm::SmallVector<Value*, 4> moved(1, &operand);
  while (Node* producer = moved.back()->producer()) {
    const std::optional<MovementKind> kind = movementKind(*producer);
    const bool isMoved = kind && *kind != MovementKind::Concat &&
                         (picksElements(*kind) || *kind == MovementKind::Convert);
    if (!isMoved)
      break;
    moved.push_back(movedOperand(*producer));
  }
  Node* computed = moved.back()->producer();
  if (!computed || cacheAxis(*computed))
    return std::nullopt;
  Node* join = joinBehind(*moved.back());
  if (!join)
    return std::nullopt;
  const unsigned axis = *cacheAxis(*join);
  for (Value* value : llvm::reverse(moved)) {
    auto found = findRowFunction(join->result(), axis, *value);
    auto* function = std::get_if<RowFunction>(&found);
    if (auto order = function ? orderLikeRows(*function) : std::nullopt)
      return AttendedCache{join, axis, value, std::move(*function), std::move(*order)};
  }
  return std::nullopt;
}

/// Whether what is computed of a cache goes nowhere but to what attention reads of it.
bool isReadOnlyThrough(const AttendedCache& cache) {
  llvm::SmallVector<const Value*, 16> pending(1, &cache.join->result());
  llvm::DenseSet<const Value*> seen;
  while (!pending.empty()) {
    const Value* value = pending.pop_back_val();
    if (value == cache.attended || !seen.insert(value).second)
      continue;
    if (value->isGraphOutput() && value->producer() != cache.join)
      return false;
    for (const Use& use : value->uses()) {
      if (use.user().is("Shape") || (value->producer() == cache.join && isConvertedOutput(use)))
        continue;
      if (!cache.function.region.contains(&use.user()))
        return false;
      for (const Value& result : use.user().results())
        pending.push_back(&result);
    }
  }
  return true;
}

class CacheAttendedRows final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    if (context.freed) // the model keeps the caches that it has
      return llvm::Error::success();
    Graph& graph = model.graph();
    llvm::SmallVector<Node*, 64> attentions;
    for (Node& node : graph.nodes())
      if (node.op() == OpName(kvoptDomain, "Sdpa"))
        attentions.push_back(&node);
    int64_t count = 0;
    for (Node* attention : attentions)
      for (unsigned operand : {1U, 2U})
        count += rewrite(graph, *attention->operand(operand), context) ? 1 : 0;
    if (count == 0)
      return llvm::Error::success();
    context.count(cacheAttendedRowsName, "caches", count);
    graph.eraseDeadNodes();
    restoreOrder(graph);
    model.markEdited();
    return inferShapes(graph);
  }

private:
  static bool rewrite(Graph& graph, Value& operand, PassContext& context) {
    const std::optional<AttendedCache> cache = attendedCache(operand);
    if (!cache || !isReadOnlyThrough(*cache))
      return false;
    Value& rows = cache->join->result();
    Rewriter rewriter(graph, cacheAttendedRowsName, context.journal, cache->join->name());
    AttentionBuilder build(rewriter);
    Value& past = *cache->join->operand(0);
    Value& fresh = RowFunctionWriter(cache->function, *cache->join->operand(1), rewriter)
                       .after(past, cache->axis)
                       .write();
    Value& joined = build.concat(past, fresh, cache->axis);
    Value* read = &joined;
    const std::vector<int64_t>& order = cache->order;
    if (!order.empty()) {
      std::vector<int64_t> back(order.size());
      for (size_t axis = 0; axis < back.size(); ++axis)
        back[static_cast<size_t>(order[axis])] = static_cast<int64_t>(axis);
      read = &build.transpose(joined, std::move(back));
    }
    if (rewriter.replace({{cache->attended, read}, {&rows, &joined}}))
      return false;
    eraseDeadChains({rewriter.outdated().begin(), rewriter.outdated().end()}, [](Node&) {});
    context.attendedPasts.insert(inputBehind(past)->name());
    return true;
  }
};

} // namespace

void register_cache_attended_rows(PassRegistry& registry) {
  registry.add({cacheAttendedRowsName,
                "Caches rows as attention reads them, after what is computed of each.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(
                      std::make_unique<CacheAttendedRows>());
                }});
}

} // namespace kvopt::transforms
