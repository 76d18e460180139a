// Finds pasts and tables among the inputs by their extents.
#include "passes/analysis/interface/interface_extents.h"

#include "ir/movement.h"
#include "passes/analysis/movement/data_movement.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// The symbol of an extent that is a single symbol; empty for any other.
std::string nameOf(const Dim& extent) {
  auto symbols = extent.symbols();
  return symbols.size() == 1 && extent == Dim::symbol(symbols[0]) ? symbols[0] : std::string();
}

void forEachExtent(const Graph& graph, llvm::function_ref<void(const Value&, const Dim&)> visit) {
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->type().hasRank())
      for (const Dim& extent : input->type().shape())
        visit(*input, extent);
}

/// An input of integers or booleans with two axes, without a default.
bool isTable(const Value& input) {
  const ElementType element = input.type().elementType();
  return !input.initializer() && input.type().hasRank() && input.type().rank() == 2 &&
         (isInteger(element) || element == ElementType::Bool);
}

/// Whether the value only moves the elements of a graph input. Dequantized codes count as such.
bool movesAnInput(const Value& value) {
  const Value* source = &value;
  while (const Node* node = source->producer()) {
    source = node->is("DequantizeLinear") ? node->operand(0) : movedOperand(*node);
    if (!source)
      return false;
  }
  return source->isGraphInput();
}

class InterfaceReader {
public:
  InterfaceReader(const Graph& readGraph, const llvm::StringSet<>& ofOneInput)
      : graph(readGraph), own(ofOneInput) {
    forEachExtent(graph, [&](const Value&, const Dim& extent) {
      for (const std::string& symbol : extent.symbols())
        ++occurrences[symbol];
    });
  }

  std::vector<ExtentEquation> run() {
    readPasts();
    if (newRows.isUnknown())
      return {};
    readMasks();
    return std::move(equations);
  }

private:
  /// Rows that are joined to an input.
  struct Joined {
    Dim past;
    Dim added;
    /// Whether the model returns all of them: the next step starts with the same number.
    bool isKept = false;
    const Node* node = nullptr;
  };

  void readPasts() {
    for (const Node& node : graph.nodes()) {
      const Value* past = node.is("Concat") ? node.operand(0) : nullptr;
      const TensorType& joined = node.result().type();
      if (!past || !past->type().hasRank() || !joined.hasRank() || !isMovedFromInput(*past))
        continue;
      auto axis = normalizedAxis(node.intAttr("axis", 0), joined.rank());
      const Dim rows = axis ? past->type().dim(*axis) : Dim::unknown();
      if (occurrences.count(nameOf(rows)) && movesAnInput(*past))
        pasts.push_back({rows, joined.dim(*axis) - rows, node.result().isGraphOutput(), &node});
    }
    // Caches that keep the last rows only are shorter than the others.
    auto first = llvm::find_if(pasts, [](const Joined& past) { return past.isKept; });
    if (first == pasts.end())
      first = pasts.begin();
    if (first == pasts.end())
      return;
    pastRows = first->past;
    newRows = first->added;
    for (const Joined& past : pasts)
      if (!past.past.isKnownEqual(pastRows)) {
        if (own.contains(nameOf(past.past)))
          equations.push_back({pastRows, past.past, false, past.node});
        else if (past.isKept == first->isKept)
          isOneLength = false;
      }
  }

  void readMasks() {
    Dim batch;
    for (const std::unique_ptr<Value>& input : graph.inputs())
      if (batch.isUnknown() && isTable(*input) && input->type().dim(1).isKnownEqual(newRows))
        batch = input->type().dim(0);
    const Dim allRows = pastRows + newRows;
    for (const std::unique_ptr<Value>& input : graph.inputs()) {
      if (!isTable(*input) || isIndex(*input, 0))
        continue;
      const bool isMask = isOneLength && isAlone(input->type().dim(1));
      if (isMask)
        equations.push_back({allRows, input->type().dim(1), false, nullptr});
      if (isAlone(input->type().dim(0)) && !batch.isUnknown() &&
          (isMask || input->type().dim(1).isKnownEqual(allRows)))
        equations.push_back({batch, input->type().dim(0), false, nullptr});
    }
  }

  /// Whether the elements are indices into a table: token ids and positions.
  static bool isIndex(const Value& value, unsigned depth) {
    constexpr unsigned mostOperators = 4;
    return depth < mostOperators && llvm::any_of(value.uses(), [&](const Use& use) {
             const Node& node = use.user();
             if (node.is("Gather") || node.is("GatherElements") || node.is("GatherND"))
               return use.operandIndex() == 1;
             if (node.op().type() == "RotaryEmbedding")
               return true;
             std::optional<MovementKind> kind = movementKind(node);
             return kind && keepsOrder(*kind) && isMoved(use) && isIndex(node.result(), depth + 1);
           });
  }

  /// Whether the extent is a symbol that occurs nowhere else.
  bool isAlone(const Dim& extent) const {
    auto found = occurrences.find(nameOf(extent));
    return found != occurrences.end() && found->second == 1 && own.contains(found->first());
  }

  const Graph& graph;
  const llvm::StringSet<>& own;
  llvm::StringMap<unsigned> occurrences;
  std::vector<Joined> pasts;
  Dim pastRows;
  Dim newRows;
  /// Whether the pasts have one length, which could be that of a mask.
  bool isOneLength = true;
  std::vector<ExtentEquation> equations;
};

} // namespace

llvm::StringSet<> symbolsOfOneInput(const Graph& graph) {
  llvm::StringMap<const Value*> inputs;
  forEachExtent(graph, [&](const Value& input, const Dim& extent) {
    for (const std::string& symbol : extent.symbols()) {
      auto [entry, isNew] = inputs.try_emplace(symbol, &input);
      if (!isNew && entry->second != &input)
        entry->second = nullptr;
    }
  });
  llvm::StringSet<> symbols;
  for (const auto& entry : inputs)
    if (entry.second)
      symbols.insert(entry.first());
  return symbols;
}

std::vector<ExtentEquation> interfaceEquations(const Graph& graph,
                                               const llvm::StringSet<>& ofOneInput) {
  return InterfaceReader(graph, ofOneInput).run();
}

} // namespace kvopt::analysis
