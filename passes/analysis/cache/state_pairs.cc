// Shortest paths from states to outputs, and the resulting pairs.
#include "passes/analysis/cache/state_pairs.h"

#include "ir/manifest/documented_inputs.h"
#include "ir/movement.h"
#include "ir/shapes/shape_rules.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringSwitch.h"

#include <array>
#include <vector>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// The node of the main graph that is or contains the reader.
const Node& outermost(const Node& reader, const Graph& graph) {
  const Node* node = &reader;
  while (&node->graph() != &graph && node->graph().parentNode())
    node = node->graph().parentNode();
  return *node;
}

constexpr unsigned noResult = UINT_MAX;

/// The result that is the state's next value if the operator carries a state from this operand.
unsigned carriedResult(const Node& node, unsigned operand) {
  llvm::StringRef type = node.op().type();
  if (type == "LSTM")
    return operand == 5 ? 1 : operand == 6 ? 2 : noResult;
  if (type == "GRU" || type == "RNN")
    return operand == 5 ? 1 : noResult;
  if (type == "LinearAttention" || type == "CausalConvWithState")
    return operand == 3 ? 1 : noResult;
  if (node.is("Loop"))
    return operand >= 2 ? operand - 2 : noResult;
  return node.is("Scan") && operand < node.results().size() ? operand : noResult;
}

bool readsShapeOnly(const Node& node) {
  return node.is("Shape") || node.is("Size") || node.is("ConstantOfShape");
}

/// Numbers of operators on the shortest paths from a value to others; values that merely repeat it
/// are left out. Values are found in the order of their distances, on demand.
class Distances {
public:
  Distances(const Value& from, const Graph& searched) : graph(searched) { at(0).push_back(&from); }

  bool isDone() const {
    return llvm::all_of(pending, [](const auto& values) { return values.empty(); });
  }

  /// Calls `find` for every value at this distance, after those that are closer.
  void settle(int64_t distance, llvm::function_ref<void(const Value&)> find) {
    std::vector<const Value*>& values = at(distance);
    for (size_t i = 0; i < values.size(); ++i) { // the list grows
      const Value& value = *values[i];
      if (!found.insert(&value).second)
        continue;
      find(value);
      visit(value, distance);
    }
    values.clear();
  }

private:
  /// Values pending at a distance. One operator adds one or two steps.
  std::vector<const Value*>& at(int64_t distance) {
    return pending[static_cast<size_t>(distance) % pending.size()];
  }

  void visit(const Value& value, int64_t distance) {
    for (const Use& use : value.uses()) {
      const Node& reader = outermost(use.user(), graph);
      if (readsShapeOnly(use.user()) || &reader.graph() != &graph)
        continue;
      const bool isDirect = &reader == &use.user();
      const unsigned carried = isDirect ? carriedResult(reader, use.operandIndex()) : noResult;
      for (unsigned i = 0; i < reader.results().size(); ++i) {
        const Value& result = reader.result(i);
        if (result.isAbsent() || found.contains(&result))
          continue;
        const bool isRepeated =
            isDirect && (reader.is("Identity") || (carried == i && distance > 0));
        at(distance + (isRepeated ? 0 : carried == i ? 1 : 2)).push_back(&result);
      }
    }
  }

  const Graph& graph;
  llvm::DenseSet<const Value*> found;
  std::array<std::vector<const Value*>, 3> pending; ///< by distance modulo 3
};

/// Whether integers can be remembered between steps: counters, positions of slots, segments. Ids of
/// tokens, which select rows of tables, and documented inputs are given by the caller.
bool mayBeCounter(const Value& input) {
  const ElementType element = input.type().elementType();
  if ((element != ElementType::Int64 && element != ElementType::Int32) || documentedInput(input))
    return false;
  constexpr size_t mostValues = 64;
  llvm::SmallVector<const Value*, 8> pending = {&input};
  for (size_t i = 0; i < pending.size() && i < mostValues; ++i)
    for (const Use& use : pending[i]->uses()) {
      const Node& reader = use.user();
      const Value* table =
          reader.is("Gather") && use.operandIndex() == 1 ? reader.operand(0) : nullptr;
      if (table && table->constant() && isFloatingPoint(table->type().elementType()))
        return false;
      if (movementKind(reader) && movedOperand(reader) == pending[i])
        for (const Value& result : reader.results())
          pending.push_back(&result);
    }
  return true;
}

bool mayBeState(const Value& input) {
  const TensorType& type = input.type();
  if (input.isInitializer() || !type.hasRank())
    return false;
  const bool isNumber = isFloatingPoint(type.elementType());
  if (isNumber ? type.rank() < 2 : type.rank() < 1 || !mayBeCounter(input))
    return false;
  return llvm::count_if(type.shape(), [](const Dim& extent) { return !extent.value(); }) <= 1;
}

bool isNextValue(const TensorType& past, const TensorType& present) {
  if (past.elementType() != present.elementType() || !present.hasRank() ||
      past.rank() != present.rank())
    return false;
  for (unsigned axis = 0; axis < past.rank(); ++axis) {
    const Dim& before = past.shape()[axis];
    const Dim& after = present.shape()[axis];
    const bool isSame = before.isKnownEqual(after) || (before.value() && isOpenExtent(after));
    if (!isSame && (axis != 0 || before.value()))
      return false;
  }
  return true;
}

/// Documented names of outputs of an encoder or an embedding model.
bool isHandedOver(llvm::StringRef name) {
  return llvm::StringSwitch<bool>(name)
      .Cases("inputs_embeds", "encoder_hidden_states", "pixel_values", "input_features", true)
      .Default(false);
}

/// A state, and the output that is its next value.
struct Pairing {
  const Value* input;
  Distances distances;
  /// Reached outputs, each with its distance, until one of them became its partner.
  std::vector<std::pair<size_t, int64_t>> reached;
  std::optional<size_t> output;
  int64_t distance = 0; ///< distance of the output
};

/// Pairs every state with the nearest output to which no other state is nearer; among equally near
/// states, the first. A search ends at the partner.
std::vector<Pairing> pairingsOf(const Graph& graph, const llvm::DenseSet<const Value*>& knownInputs,
                                const llvm::DenseSet<const Value*>& knownOutputs) {
  llvm::ArrayRef<Value*> outputs = graph.outputs();
  llvm::DenseMap<const Value*, llvm::SmallVector<size_t, 1>> slots;
  for (size_t j = 0; j < outputs.size(); ++j)
    if (!knownOutputs.count(outputs[j]))
      slots[outputs[j]].push_back(j);
  std::vector<Pairing> pairings;
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    if (knownInputs.count(input.get()) || !mayBeState(*input) || isHandedOver(input->name()))
      continue;
    if (llvm::any_of(slots, [&](const auto& slot) {
          return isNextValue(input->type(), slot.first->type());
        }))
      pairings.push_back({input.get(), Distances(*input, graph), {}, std::nullopt});
  }
  std::vector<bool> taken(outputs.size(), false);
  std::vector<Pairing*> searching;
  for (Pairing& pairing : pairings)
    searching.push_back(&pairing);
  for (int64_t distance = 0; !searching.empty(); ++distance) {
    for (Pairing* pairing : searching) {
      llvm::SmallVector<size_t, 4> here;
      pairing->distances.settle(distance, [&](const Value& value) {
        auto found = slots.find(&value);
        if (distance > 0 && found != slots.end() &&
            isNextValue(pairing->input->type(), value.type()))
          here.append(found->second.begin(), found->second.end());
      });
      llvm::sort(here);
      for (size_t slot : here)
        pairing->reached.emplace_back(slot, distance);
      const auto* free = llvm::find_if(here, [&](size_t slot) { return !taken[slot]; });
      if (free == here.end())
        continue;
      taken[*free] = true;
      pairing->output = *free;
      pairing->distance = distance;
    }
    llvm::erase_if(searching, [](const Pairing* pairing) {
      return pairing->output || pairing->distances.isDone();
    });
  }
  return pairings;
}

} // namespace

std::vector<StatePair> statesByDataFlow(const Graph& graph,
                                        const llvm::DenseSet<const Value*>& knownInputs,
                                        const llvm::DenseSet<const Value*>& knownOutputs) {
  const bool readsTokens = llvm::any_of(graph.inputs(), [](const std::unique_ptr<Value>& input) {
    return isInteger(input->type().elementType()) && !input->isInitializer();
  });
  if (!readsTokens)
    return {};
  const std::vector<Pairing> pairings = pairingsOf(graph, knownInputs, knownOutputs);
  // An output that is equally near to an input without a partner may belong to that input.
  llvm::DenseSet<std::pair<size_t, int64_t>> near;
  for (const Pairing& pairing : pairings)
    if (!pairing.output)
      near.insert(pairing.reached.begin(), pairing.reached.end());
  std::vector<StatePair> pairs;
  for (const Pairing& pairing : pairings)
    if (pairing.output && !near.contains({*pairing.output, pairing.distance}))
      pairs.push_back({pairing.input, graph.outputs()[*pairing.output]});
  return pairs;
}

} // namespace kvopt::analysis
