// Shortest paths from states to outputs, and the pairs they make.
#include "passes/analysis/cache/state_pairs.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <deque>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// The node of the main graph that is or holds the reader.
const Node& outermost(const Node& reader, const Graph& graph) {
  const Node* node = &reader;
  while (&node->graph() != &graph && node->graph().parentNode())
    node = node->graph().parentNode();
  return *node;
}

constexpr unsigned noResult = UINT_MAX;

/// The result that is the state's next value where the operator carries one from this operand.
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

/// How many operators there are on the shortest way from a value to each other one; those that
/// merely repeat it are left out.
class Distances {
public:
  Distances(const Value& from, const Graph& searched) : graph(searched) {
    reach(from, 0);
    while (!queue.empty()) {
      const Value* value = queue.front();
      queue.pop_front();
      visit(*value, found.lookup(value));
    }
  }

  std::optional<int64_t> to(const Value& value) const {
    auto entry = found.find(&value);
    return entry == found.end() || entry->second == 0 ? std::nullopt
                                                      : std::optional<int64_t>(entry->second);
  }

private:
  void reach(const Value& value, int64_t distance, bool isNext = false) {
    auto [entry, isNew] = found.try_emplace(&value, distance);
    if (!isNew && entry->second <= distance)
      return;
    entry->second = distance;
    if (isNext)
      queue.push_front(&value);
    else
      queue.push_back(&value);
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
        if (result.isAbsent())
          continue;
        if (isDirect && reader.is("Identity"))
          reach(result, distance, true);
        else if (carried == i && distance > 0)
          reach(result, distance, true);
        else
          reach(result, distance + (carried == i ? 1 : 2));
      }
    }
  }

  const Graph& graph;
  llvm::DenseMap<const Value*, int64_t> found;
  std::deque<const Value*> queue;
};

bool mayBeState(const Value& input) {
  const TensorType& type = input.type();
  if (!isFloatingPoint(type.elementType()) || input.isInitializer() || !type.hasRank() ||
      type.rank() < 2)
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
    const bool isSame = before.isKnownEqual(after) || (before.value() && after.isUnknown());
    if (!isSame && (axis != 0 || before.value()))
      return false;
  }
  return true;
}

/// Names that exporters document for what an encoder or an embedding hands over.
bool isHandedOver(llvm::StringRef name) {
  return llvm::StringSwitch<bool>(name)
      .Cases("inputs_embeds", "encoder_hidden_states", "pixel_values", "input_features", true)
      .Default(false);
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
  struct Candidate {
    int64_t distance;
    size_t input;
    size_t output;
  };
  std::vector<Candidate> candidates;
  llvm::ArrayRef<Value*> outputs = graph.outputs();
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Value& input = *graph.inputs()[i];
    if (knownInputs.count(&input) || !mayBeState(input) || isHandedOver(input.name()))
      continue;
    const Distances distances(input, graph);
    for (size_t j = 0; j < outputs.size(); ++j)
      if (!knownOutputs.count(outputs[j]) && isNextValue(input.type(), outputs[j]->type()))
        if (std::optional<int64_t> distance = distances.to(*outputs[j]))
          candidates.push_back({*distance, i, j});
  }
  llvm::stable_sort(candidates,
                    [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
  std::vector<const Value*> presents(graph.inputs().size(), nullptr);
  std::vector<bool> taken(outputs.size(), false);
  for (const Candidate& candidate : candidates) {
    if (presents[candidate.input] || taken[candidate.output])
      continue;
    presents[candidate.input] = outputs[candidate.output];
    taken[candidate.output] = true;
  }
  // An output that is as near to an input without a partner may be that one's.
  std::vector<int64_t> distances(presents.size(), 0);
  for (const Candidate& candidate : candidates)
    if (presents[candidate.input] == outputs[candidate.output])
      distances[candidate.input] = candidate.distance;
  std::vector<bool> isAmbiguous(presents.size(), false);
  for (const Candidate& candidate : candidates)
    for (size_t i = 0; i < presents.size() && !presents[candidate.input]; ++i)
      isAmbiguous[i] = isAmbiguous[i] || (presents[i] == outputs[candidate.output] &&
                                          distances[i] == candidate.distance);
  std::vector<StatePair> pairs;
  for (size_t i = 0; i < presents.size(); ++i)
    if (presents[i] && !isAmbiguous[i])
      pairs.push_back({graph.inputs()[i].get(), presents[i]});
  return pairs;
}

} // namespace kvopt::analysis
