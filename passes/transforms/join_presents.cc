// Makes the model return the whole cache where it returns only new rows, which the caller appends.
//
//   before   present_key = k                 joined = Concat<2>(past_key, k)
//   after    present_key = Concat<2>(past_key, k)
//
// Attention reads the joined rows in both forms. In the first form the program that drives the
// model joins them, too, for the next step; the manifest of such a model says `"present_rows":
// "new"`. In the second form targets find a cache that grows.
#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/cache_origins.h"
#include "passes/analysis/movement/equal_values.h"
#include "passes/pass.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;

namespace {

constexpr const char* joinPresentsName = "join-presents";

/// The Concat of a graph input and new rows that feeds keys or values; null if there is none.
Node* joinOf(Value& operand) {
  Value* value = &operand;
  while (Node* producer = value->producer()) {
    if (producer->is("Concat")) {
      const bool isJoin = producer->operands().size() == 2 && producer->operand(0) &&
                          producer->operand(1) && !producer->graph().parentNode();
      const Value* past = isJoin ? producer->operand(0) : nullptr;
      return past && past->isGraphInput() && !past->constant() ? producer : nullptr;
    }
    if (!movementKind(*producer))
      return nullptr;
    value = movedOperand(*producer);
  }
  return nullptr;
}

/// Indices of the outputs that return these rows unchanged.
llvm::SmallVector<unsigned, 2> slotsOf(const Graph& graph, const Value& rows) {
  llvm::SmallVector<unsigned, 2> slots;
  for (unsigned slot = 0; slot < graph.outputs().size(); ++slot) {
    const Value* output = graph.outputs()[slot];
    const Node* copy = output->producer();
    if (areEqual(*output, rows) ||
        (copy && copy->is("Identity") && areEqual(*copy->operand(0), rows)))
      slots.push_back(slot);
  }
  return slots;
}

/// Whether only the join, and readers of extents, read the past, and the past has any number of
/// rows. In a past with a fixed number of rows, new rows are written where a mask says, not
/// appended.
bool isAppendedTo(const Node& join) {
  const Value& past = *join.operand(0);
  const TensorType& type = past.type();
  return type.hasRank() && !type.dim(join.intAttr("axis", 0)).value() &&
         llvm::all_of(past.uses(), [&](const Use& use) {
           return &use.user() == &join || use.user().is("Shape");
         });
}

class JoinPresents final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    Graph& graph = model.graph();
    const CacheOrigins origins(graph);
    llvm::DenseSet<const Value*> comeOut;
    for (const Value* output : graph.outputs())
      if (const CacheOrigin* origin = origins.find(*output); origin && origin->input)
        comeOut.insert(origin->input);
    llvm::MapVector<Node*, unsigned> joins;
    for (Node& node : graph.nodes()) {
      if (node.op() != OpName("ai.kvopt::Sdpa"))
        continue;
      for (unsigned operand : {1U, 2U}) {
        Node* join = joinOf(*node.operand(operand));
        if (!join || comeOut.contains(join->operand(0)) || !isAppendedTo(*join))
          continue;
        const auto slots = slotsOf(graph, *join->operand(1));
        if (slots.size() == 1)
          joins.insert({join, slots.front()});
      }
    }
    // Rows that are joined to two pasts cannot be assigned to either.
    llvm::DenseMap<unsigned, unsigned> pasts;
    for (const auto& [join, slot] : joins)
      ++pasts[slot];
    joins.remove_if([&](const auto& each) { return pasts.lookup(each.second) > 1; });
    for (const auto& [join, slot] : joins) {
      Value& rows = *graph.outputs()[slot];
      const std::string name = rows.name().str();
      graph.rename(rows, graph.freshName(name + "_rows"));
      graph.rename(join->result(), name);
      graph.setOutput(slot, join->result());
      context.history.addNewRows(name);
    }
    if (joins.empty())
      return llvm::Error::success();
    context.count(joinPresentsName, "caches", static_cast<int64_t>(joins.size()));
    graph.eraseDeadNodes();
    model.markEdited();
    return inferShapes(graph);
  }
};

} // namespace

void register_join_presents(PassRegistry& registry) {
  registry.add({joinPresentsName,
                "Makes outputs that return only new rows return the whole cache.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<JoinPresents>());
                }});
}

} // namespace kvopt::transforms
