// Gives equal extents one symbol, and unnamed extents a symbol.
//
//   before   (int64[batch, total] attention_mask, float[batch, 2, past, 16] past_key, …)
//            masked = Add(scores[batch, 4, tokens, past + tokens], mask[batch, 1, tokens, total])
//   after    (int64[batch, past + tokens] attention_mask, …)
//
// A symbol that a Reshape divides by a number is a multiple of it.
//
// An operator that joins or multiplies extents fails unless they are equal. One that broadcasts
// would also accept 1; the pass records the assumption that no caller relies on this. It also
// records assumptions based on the interface of a decoder whose inputs have differently named
// extents.
#include "ir/elementwise.h"
#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/interface/interface_extents.h"
#include "passes/extents/unequal_extents.h"
#include "passes/pass.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

class RelateExtents final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    Graph& graph = model.graph();
    context.unequalExtents = model.unequalExtents;
    bool changed = nameExtents(graph);
    if (changed)
      if (llvm::Error error = inferShapes(graph))
        return error;
    orderSymbols(graph);
    ofOneInput = symbolsOfOneInput(graph);
    if (divide(graph))
      if (llvm::Error error = inferShapes(graph))
        return error;
    for (unsigned round = 0; round < mostRounds; ++round) {
      if (!assumeWithin(graph, context) && !relate(graph, context))
        break;
      if (llvm::Error error = inferShapes(graph))
        return error;
    }
    return llvm::Error::success();
  }

private:
  static constexpr unsigned mostRounds = 8;

  /// Names extents: `input_ids_dim_1` for the second extent of input_ids.
  static bool nameExtents(Graph& graph) {
    llvm::StringSet<> taken = extents::inputSymbols(graph);
    bool any = false;
    for (const std::unique_ptr<Value>& input : graph.inputs()) {
      if (!input->type().hasRank())
        continue;
      Shape shape(input->type().shape().begin(), input->type().shape().end());
      for (unsigned axis = 0; axis < shape.size(); ++axis) {
        if (!shape[axis].isUnknown())
          continue;
        shape[axis] = Dim::symbol(extents::extentName(*input, axis, taken));
        any = true;
      }
      input->setType(TensorType(input->type().elementType(), std::move(shape)));
    }
    return any;
  }

  /// Replaces symbols that must be multiples of a number for a Reshape to succeed by multiples of
  /// new symbols: ids [4*t, tokens] of four codebooks, which are reshaped to [-1, 4, tokens].
  bool divide(Graph& graph) {
    solved.clear();
    for (const Node& node : graph.nodes()) {
      if (!node.is("Reshape") || !node.operand(0)->type().hasRank() ||
          !node.result().type().hasRank())
        continue;
      Dim known = Dim::fixed(1);
      int64_t number = 1;
      unsigned open = 0;
      for (const Dim& extent : node.result().type().shape()) {
        open += extent.isUnknown() ? 1 : 0;
        known = extent.isUnknown() ? known : known * extent;
        number *= extent.value().value_or(1);
      }
      const Dim count = node.operand(0)->type().elementCount();
      if (open != 1 || number < 2 || count.isUnknown() || count.dividedBy(known))
        continue;
      for (const std::string& symbol : count.symbols())
        if (order.count(symbol) && !solved.count(symbol) &&
            divideBySmallest(symbol, number, count, known))
          break;
    }
    if (!solved.empty())
      substituteIn(graph);
    return !solved.empty();
  }

  /// Replaces the symbol by the smallest multiple, of a divisor of `number`, with which `known`
  /// divides `count`; false if there is none.
  bool divideBySmallest(const std::string& symbol, int64_t number, const Dim& count,
                        const Dim& known) {
    constexpr int64_t mostParts = 4096;
    for (int64_t parts = 2; parts <= std::min(number, mostParts); ++parts) {
      if (number % parts != 0)
        continue;
      const std::string name = formatted("{}_by_{}", symbol, parts);
      llvm::StringMap<Dim> multiple;
      multiple[symbol] = Dim::fixed(parts) * Dim::symbol(name);
      // If the quotient contains another symbol, that one may be the multiple.
      const auto quotient = substituted(count, multiple).dividedBy(known);
      const auto rest = quotient ? quotient->dividedBy(Dim::symbol(name)) : std::nullopt;
      if (!rest || !rest->value())
        continue;
      order.try_emplace(name, order.size());
      solved[symbol] = multiple[symbol];
      return true;
    }
    return false;
  }

  /// Assumes that slices of constant tables end within them if the reader of the rows has the same
  /// number: `table[past : past + tokens]` has a row for each token.
  static bool assumeWithin(Graph& graph, PassContext& context) {
    bool any = false;
    for (Node& node : graph.nodes()) {
      if (!node.is("Slice") || node.isWithinAssumed() || !isTableRows(node))
        continue;
      const std::optional<std::pair<Dim, Dim>> range = computedRange(node);
      if (!range || !meetsRows(node.result(), range->second - range->first))
        continue;
      node.assumeWithin();
      const Value& table = *node.operand(0);
      const TensorType& read = node.result().type();
      for (unsigned axis = 0; axis < read.rank(); ++axis)
        if (read.shape()[axis].isUnknown())
          note(context, formatted("{} <= {}", range->second.str(), table.type().shape()[axis]));
      any = true;
    }
    return any;
  }

  /// The only start and end of a Slice that are not constants; nullopt unless there is exactly one
  /// pair that is known to be in order.
  static std::optional<std::pair<Dim, Dim>> computedRange(const Node& node) {
    const auto starts = node.operand(1)->knownIntegers();
    const auto ends = node.operand(2)->knownIntegers();
    std::optional<std::pair<Dim, Dim>> range;
    for (size_t i = 0; starts && ends && i < std::min(starts->size(), ends->size()); ++i) {
      const Dim& start = (*starts)[i];
      const Dim& end = (*ends)[i];
      if (start.value() && end.value())
        continue;
      if (range || !start.isKnownNonNegative() || !(end - start).isKnownNonNegative())
        return std::nullopt;
      range = {start, end};
    }
    return range;
  }

  /// Whether a Slice selects rows of a numeric table.
  static bool isTableRows(const Node& node) {
    const Value* table = node.operand(0);
    const TensorType& rows = node.result().type();
    return table && node.operand(1) && node.operand(2) && table->type().hasRank() &&
           isFloatingPoint(table->type().elementType()) &&
           llvm::all_of(table->type().shape(),
                        [](const Dim& extent) { return extent.value().has_value(); }) &&
           rows.hasRank() &&
           llvm::count_if(rows.shape(), [](const Dim& extent) { return extent.isUnknown(); }) == 1;
  }

  /// Whether an operator broadcasts the rows, moved or not, with the same number of rows.
  static bool meetsRows(const Value& value, const Dim& rows, unsigned depth = 0) {
    constexpr unsigned mostOperators = 8;
    return depth < mostOperators && llvm::any_of(value.uses(), [&](const Use& use) {
             const Node& node = use.user();
             if (node.results().empty() || !node.result().type().hasRank())
               return false;
             const auto hasRows = [&](const Use& other) {
               return other.value() && other.value()->type().hasRank() &&
                      llvm::any_of(other.value()->type().shape(),
                                   [&](const Dim& extent) { return extent.isKnownEqual(rows); });
             };
             if (isElementwise(node) && llvm::any_of(node.operands(), hasRows))
               return true;
             return (isElementwise(node) || movementKind(node)) &&
                    meetsRows(node.result(), rows, depth + 1);
           });
  }

  /// Orders symbols so that those of earlier inputs are kept.
  void orderSymbols(const Graph& graph) {
    order.clear();
    for (const std::unique_ptr<Value>& input : graph.inputs())
      for (const Dim& extent :
           input->type().hasRank() ? input->type().shape() : llvm::ArrayRef<Dim>())
        for (const std::string& symbol : extent.symbols())
          order.try_emplace(symbol, order.size());
  }

  /// Replaces symbols according to the equations; false if there is nothing to replace. Strict
  /// equations come first, because their consequences need no assumption.
  bool relate(Graph& graph, PassContext& context) {
    // The interface is used only if operators yield nothing more.
    return relate(graph, extentEquations(graph), context) ||
           relate(graph, interfaceEquations(graph, ofOneInput), context);
  }

  bool relate(Graph& graph, const std::vector<ExtentEquation>& equations, PassContext& context) {
    solved.clear();
    for (bool isStrict : {true, false})
      for (const ExtentEquation& equation : equations)
        if (equation.isStrict == isStrict)
          solve({substituted(equation.left), substituted(equation.right), isStrict, equation.node},
                context);
    if (!solved.empty())
      substituteIn(graph);
    return !solved.empty();
  }

  void solve(const ExtentEquation& equation, PassContext& context) {
    if (equation.left.isKnownEqual(equation.right) || !isOfInputs(equation))
      return;
    auto found = solvedExtent(equation, [&](llvm::StringRef kept, llvm::StringRef replaced) {
      return order.lookup(kept) < order.lookup(replaced);
    });
    if (!found)
      return;
    if (!equation.isStrict)
      note(context, formatted("{} = {}", found->symbol, found->value.str()));
    llvm::StringMap<Dim> last;
    last[found->symbol] = found->value;
    for (auto& entry : solved)
      entry.second = substituted(entry.second, last);
    solved[found->symbol] = found->value;
  }

  /// Records an assumption once, even if the pass runs several times.
  static void note(PassContext& context, std::string text) {
    if (!llvm::is_contained(context.assumptions, text))
      context.assumptions.push_back(std::move(text));
  }

  /// Whether the extents belong to inputs: callers choose those, and others follow from them.
  bool isOfInputs(const ExtentEquation& equation) const {
    return llvm::all_of((equation.left - equation.right).symbols(),
                        [&](const std::string& symbol) { return order.count(symbol) != 0; });
  }

  static Dim substituted(const Dim& extent, const llvm::StringMap<Dim>& values) {
    return extent.substitute([&](llvm::StringRef symbol) {
      auto found = values.find(symbol);
      return found == values.end() ? std::nullopt : std::optional<Dim>(found->second);
    });
  }
  Dim substituted(const Dim& extent) const { return substituted(extent, solved); }

  void substituteIn(Graph& graph) const {
    auto isOpen = [](const Dim& extent) { return !extent.isUnknown() && !extent.value(); };
    // Few extents occur in many values.
    llvm::SmallVector<std::pair<Dim, Dim>, 16> known;
    auto replaced = [&](const Dim& extent) {
      constexpr size_t mostKnown = 16;
      for (const auto& [before, after] : known)
        if (before == extent)
          return after;
      Dim after = substituted(extent);
      if (known.size() < mostKnown)
        known.emplace_back(extent, after);
      return after;
    };
    auto replaceIn = [&](Value& value) {
      if (!value.type().hasRank() || llvm::none_of(value.type().shape(), isOpen))
        return;
      Shape shape;
      for (const Dim& extent : value.type().shape())
        shape.push_back(isOpen(extent) ? replaced(extent) : extent);
      value.setType(TensorType(value.type().elementType(), std::move(shape)));
    };
    forEachGraph(graph, [&](Graph& visited) {
      for (const std::unique_ptr<Value>& input : visited.inputs())
        replaceIn(*input);
      for (Node& node : visited.nodes())
        for (Value& result : node.results())
          replaceIn(result);
    });
  }

  llvm::StringSet<> ofOneInput;
  llvm::StringMap<size_t> order;
  llvm::StringMap<Dim> solved;
};

} // namespace

void register_relate_extents(PassRegistry& registry) {
  registry.add({"relate-extents", "Gives equal extents one symbol.", {}, [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<RelateExtents>());
                }});
}

} // namespace kvopt::transforms
