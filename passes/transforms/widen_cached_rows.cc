// Keeps caches in the type of their inputs and outputs if attention computes in a narrower type.
//
//   before   all = Concat(Cast<float16>(past), new)      present = Cast<float>(all)
//            o = ai.kvopt.Sdpa(q, keys(all), …)
//   after    present = Concat(past, Cast<float>(new))
//            o = Cast<float16>(ai.kvopt.Sdpa(Cast<float>(q), keys(present), …))
//
// Converters to float16 that keep the types of inputs and outputs write the first form, in which
// each step casts the whole cache twice. Rows that an earlier step returned are float16 numbers, so
// casting them changes nothing. The context records the assumption that callers pass no other rows.
#include "ir/attribute_list.h"
#include "ir/movement.h"
#include "ir/op_name.h"
#include "ir/shapes/shape_inference.h"
#include "passes/pass.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::transforms {
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* widenCachedRowsName = "widen-cached-rows";

/// A cache that is cast after its input and before its output.
struct CastCache {
  Value* past = nullptr;
  Node* joined = nullptr;  ///< node that joins new rows to the past, as narrow rows
  unsigned fresh = 1;      ///< operand number of the new rows
  Node* present = nullptr; ///< the Cast that produces the output
  ElementType wide = ElementType::Undefined;
};

bool isNarrowing(const Node& node) {
  const Value* from = node.is("Cast") ? node.operand(0) : nullptr;
  if (!from || !isFloatingPoint(from->type().elementType()) ||
      !isFloatingPoint(node.result().type().elementType()))
    return false;
  return byteWidth(node.result().type().elementType()) < byteWidth(from->type().elementType());
}

/// Operand number of the new rows of an operator that adds them to those of its first operand.
std::optional<unsigned> freshOperand(const Node& node) {
  if (node.is("Concat") && node.operands().size() == 2)
    return 1;
  if (node.op() == OpName(kvoptDomain, "AppendRows") || node.is("TensorScatter"))
    return 1;
  if (node.is("ScatterND") || node.is("ScatterElements"))
    return 2;
  return std::nullopt;
}

std::optional<CastCache> castCacheOf(Node& node) {
  const std::optional<unsigned> fresh = freshOperand(node);
  if (!fresh || !node.operand(*fresh))
    return std::nullopt;
  Node* cast = node.operand(0) ? node.operand(0)->producer() : nullptr;
  if (!cast || !isNarrowing(*cast) || !cast->operand(0)->isGraphInput() ||
      node.result().isGraphOutput())
    return std::nullopt;
  CastCache cache{cast->operand(0), &node, *fresh, nullptr, cast->operand(0)->type().elementType()};
  for (Use& use : node.result().uses())
    if (use.user().is("Cast") && use.user().result().isGraphOutput() &&
        use.user().result().type().elementType() == cache.wide)
      cache.present = &use.user();
  return cache.present ? std::optional<CastCache>(cache) : std::nullopt;
}

class CacheWidener {
public:
  CacheWidener(Graph& changedGraph, PassContext& passContext)
      : graph(changedGraph), context(passContext) {}

  unsigned run() {
    llvm::SmallVector<Node*, 64> attentions;
    for (Node& node : graph.nodes())
      if (node.op() == OpName(kvoptDomain, "Sdpa"))
        attentions.push_back(&node);
    unsigned count = 0;
    for (Node* attention : attentions) {
      auto keys = rowsOf(*attention, 1);
      auto values = rowsOf(*attention, 2);
      if (!keys || !values)
        continue;
      widen(*attention, *keys, *values);
      ++count;
    }
    if (count != 0)
      graph.eraseDeadNodes();
    return count;
  }

private:
  /// Rows that an attention reads: their movements, last first, and the narrow rows.
  struct MovedRows {
    llvm::SmallVector<Value*, 8> moves;
    Value* narrow = nullptr;
  };

  /// nullopt unless the rows are those of a cache that is cast.
  static std::optional<MovedRows> rowsOf(const Node& attention, unsigned operand) {
    MovedRows rows;
    rows.narrow = attention.operand(operand);
    while (rows.narrow && rows.narrow->producer()) {
      Node& node = *rows.narrow->producer();
      const bool isRead = isNarrowing(node) && node.operand(0)->isGraphInput();
      if (isRead || castCacheOf(node))
        return rows;
      const std::optional<MovementKind> kind = movementKind(node);
      if (!kind || !picksElements(*kind))
        return std::nullopt;
      rows.moves.push_back(rows.narrow);
      rows.narrow = movedOperand(node);
    }
    return std::nullopt;
  }

  /// Makes an attention read the rows in the caches' type, and compute in that type.
  void widen(Node& attention, const MovedRows& keys, const MovedRows& values) {
    const ElementType narrow = attention.result().type().elementType();
    Value* key = &wideRows(*keys.narrow);
    const ElementType wide = key->type().elementType();
    for (Value* moved : llvm::reverse(keys.moves))
      key = &copyOf(*moved, *key);
    Value* value = &wideRows(*values.narrow);
    for (Value* moved : llvm::reverse(values.moves))
      value = &copyOf(*moved, *value);
    attention.setOperand(1, key);
    attention.setOperand(2, value);
    for (const Use& use : attention.operands())
      if (use.value() && use.value()->type().elementType() == narrow)
        attention.setOperand(use.operandIndex(), &cast(*use.value(), wide, &attention));
    Value& result = attention.result();
    result.setType(typed(result.type(), wide));
    llvm::SmallVector<Use*, 4> uses;
    for (Use& use : result.uses())
      uses.push_back(&use);
    Value& back = cast(result, narrow, graph.nodeAfter(attention));
    for (Use* use : uses)
      use->user().setOperand(use->operandIndex(), &back);
  }

  Value& cast(Value& value, ElementType to, Node* before) {
    Node& node = graph.createFresh("Cast", {&value}, 1, before);
    node.setAttribute("to", Attribute::ofInt(static_cast<int64_t>(to)));
    node.result().setType(typed(value.type(), to));
    return node.result();
  }

  /// The cache's own rows, which replace the narrow ones.
  Value& wideRows(Value& narrow) {
    auto known = widened.find(&narrow);
    if (known != widened.end())
      return *known->second;
    auto cache = castCacheOf(*narrow.producer());
    Value& past = cache ? *cache->past : *narrow.producer()->operand(0);
    context.assumptions.push_back(formatted("the rows of {} are {} numbers", past.name(),
                                            dtypeName(narrow.type().elementType())));
    if (!cache) {
      readShapesOf(past, narrow);
      return *(widened[&narrow] = &past);
    }
    Node& joined = *cache->joined;
    llvm::SmallVector<Value*, 4> operands;
    for (const Use& use : joined.operands())
      operands.push_back(use.value());
    operands[0] = &past;
    operands[cache->fresh] = &cast(*joined.operand(cache->fresh), cache->wide, &joined);
    Node& wide = graph.createFresh(joined.op(), operands, 1, &joined);
    copyAttributes(joined, wide);
    wide.result().setType(typed(joined.result().type(), cache->wide));
    cache->present->result().replaceAllUsesWith(wide.result());
    readShapesOf(past, *joined.operand(0));
    readShapesOf(wide.result(), joined.result());
    return *(widened[&narrow] = &wide.result());
  }

  /// Makes operators that read the extents of `before` read those of `after`.
  static void readShapesOf(Value& after, Value& before) {
    for (Use& use : llvm::make_early_inc_range(before.uses()))
      if (use.user().is("Shape"))
        use.user().setOperand(0, &after);
  }

  /// Copies a value that was moved from other rows, for the given rows.
  Value& copyOf(Value& moved, Value& rows) {
    Node& move = *moved.producer();
    Node& copy = graph.createFresh(move.op(), operandsMoving(move, rows),
                                   static_cast<unsigned>(move.results().size()), &move);
    copyAttributes(move, copy);
    Value& result = copy.result(moved.resultIndex());
    result.setType(typed(moved.type(), rows.type().elementType()));
    return result;
  }

  static TensorType typed(TensorType type, ElementType element) {
    type.setElementType(element);
    return type;
  }

  Graph& graph;
  PassContext& context;
  llvm::DenseMap<const Value*, Value*> widened;
};

class WidenCachedRows final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    const unsigned count = CacheWidener(model.graph(), context).run();
    context.count(widenCachedRowsName, "operands", count);
    // Known elements of the narrow values are not copied.
    return count == 0 ? llvm::Error::success() : inferShapes(model.graph());
  }
};

} // namespace

void register_widen_cached_rows(PassRegistry& registry) {
  registry.add(
      {widenCachedRowsName,
       "Keeps caches in the type of their inputs if attention computes in a narrower type.",
       {},
       [](const PassOptions&) {
         return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<WidenCachedRows>());
       }});
}

} // namespace kvopt::transforms
