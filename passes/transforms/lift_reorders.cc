// Removes the selection of batch rows of caches from a decoder for beam search. The program that
// drives the model rearranges the caches before a step instead.
//
//   before   picked = Gather<0>(past_key, beam_idx)   present_key = Concat<2>(picked, k)
//   after    present_key = Concat<2>(past_key, k)      with the manifest's `reorder`: beam_idx
//
// In the graph every step copies every cache, whether the order changes or not. One input [B] with
// one entry per batch row must select the rows of all caches of the model.
#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/cache_origins.h"
#include "passes/analysis/cache/cache_reasons.h"
#include "passes/analysis/cache/driven_caches.h"
#include "passes/analysis/movement/data_movement.h"
#include "passes/pass.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* liftReordersName = "lift-reorders";

/// Source of keys or values.
struct CacheRead {
  Value* input = nullptr; ///< null: no cache
  Node* pick = nullptr;   ///< selects its batch rows; null: no selection
  bool isUpdated = false; ///< includes new rows
};

CacheRead readOf(Value& operand) {
  CacheRead read;
  std::optional<AxisMap> map = AxisMap::ofAttentionOperand(operand.type());
  Value* value = &operand;
  while (Node* producer = value->producer()) {
    if (mayUpdateCache(*producer) && producer->operand(0)) {
      value = producer->operand(0);
      read.isUpdated = true;
      if (const auto axis = map ? map->sequenceAxis() : std::nullopt)
        map->setSequenceExtent(value->type().dim(*axis));
      continue;
    }
    if (!onlyMovesData(*producer))
      return {};
    if (map && isBatchReorder(*producer, *map)) {
      if (!read.pick)
        read.pick = producer;
      value = movedOperand(*producer);
      continue;
    }
    map = map ? mapBefore(*value, std::move(*map)) : std::nullopt;
    value = movedOperand(*producer);
  }
  read.input = value->isGraphInput() && !value->graph().parentNode() ? value : nullptr;
  return read;
}

/// The value that the numbers come from, in the same order.
const Value& sourceOf(const Value& numbers) {
  const Value* value = &numbers;
  while (const Node* node = value->producer()) {
    const std::optional<MovementKind> kind = movementKind(*node);
    if (!kind || !keepsOrder(*kind))
      break;
    value = movedOperand(*node);
  }
  return *value;
}

class ReorderLift {
public:
  explicit ReorderLift(Graph& liftedGraph) : graph(liftedGraph) {}

  /// The input that selects rows of every cache; null if there is none.
  Value* find() {
    for (Node& node : graph.nodes()) {
      if (node.op() != OpName("ai.kvopt::Sdpa"))
        continue;
      for (unsigned operand : {1U, 2U}) {
        const CacheRead read = readOf(*node.operand(operand));
        if (!read.input || (!read.pick && !read.isUpdated))
          continue; // or rows that the caller rearranges
        if (!read.pick || !isLiftable(read))
          return nullptr;
        reads.insert({read.input, read.pick});
      }
    }
    // A program that rearranges rows does so in every cache.
    for (const ManifestCache& cache : cachesByDataFlow(graph, {}))
      if (llvm::none_of(reads, [&](const auto& read) { return read.first->name() == cache.past; }))
        return nullptr;
    return order;
  }

  llvm::Error run(Journal& journal) {
    for (const auto& [input, pick] : reads) {
      Rewriter rewriter(graph, liftReordersName, journal, input->name());
      if (const auto failure = rewriter.replace(pick->result(), *input))
        return unsupported("{}", failure->str()).as<RefusedError>();
    }
    graph.eraseDeadNodes();
    return inferShapes(graph);
  }

private:
  /// Whether the rows are selected directly from the input, by the same indices as in all others,
  /// and have no other reader.
  bool isLiftable(const CacheRead& read) {
    const std::optional<Movement> movement = movementOf(read.pick->result());
    const std::optional<unsigned> axis = movement ? movement->axis() : std::nullopt;
    Value* indices = movement ? read.pick->operand(movement->indices) : nullptr;
    if (!axis || !indices || movedOperand(*read.pick) != read.input)
      return false;
    const Value& source = sourceOf(*indices);
    const ElementType element = source.type().elementType();
    if (!source.isGraphInput() || source.graph().parentNode() || source.type().rank() != 1 ||
        (element != ElementType::Int64 && element != ElementType::Int32) ||
        (order && order != &source) ||
        !source.type().dim(0).isKnownEqual(read.input->type().dim(*axis)))
      return false;
    order = const_cast<Value*>(&source);
    return llvm::all_of(read.input->uses(), [&](const Use& use) {
      return &use.user() == read.pick || use.user().is("Shape");
    });
  }

  Graph& graph;
  Value* order = nullptr;
  llvm::SetVector<std::pair<Value*, Node*>> reads;
};

class LiftReorders final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    if (!context.reorder.empty()) // the manifest's input takes precedence over the graph's
      return llvm::Error::success();
    ReorderLift lift(model.graph());
    const Value* order = lift.find();
    if (!order)
      return llvm::Error::success();
    if (llvm::Error error = lift.run(context.journal))
      return error;
    context.reorder = order->name().str();
    model.markEdited();
    context.count(liftReordersName, "models");
    return llvm::Error::success();
  }
};

} // namespace

void register_lift_reorders(PassRegistry& registry) {
  registry.add({liftReordersName,
                "Removes the selection of batch rows of caches from the graph.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<LiftReorders>());
                }});
}

} // namespace kvopt::transforms
