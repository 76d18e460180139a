// Frees operators that contain extents as numbers: shapes, ranges, broadcast constants.
#include "passes/extents/freed_nodes.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/mask/mask_meaning.h"
#include "passes/analysis/movement/aligned_reshape.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/extents/freed_numbers.h"
#include "passes/extents/freed_tables.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace kvopt::extents {
using namespace analysis;
using namespace builders;
using namespace ir;

namespace {

class FreedNodes {
public:
  FreedNodes(Graph& freedGraph, ExtentSymbols& extentSymbols)
      : graph(freedGraph), symbols(extentSymbols), numbers(freedGraph, extentSymbols),
        tables(freedGraph, extentSymbols) {}

  std::optional<Obstacle> run() {
    llvm::SmallVector<Node*, 32> nodes;
    for (Node& node : graph.nodes())
      nodes.push_back(&node);
    llvm::SmallVector<Value*, 64> constants; // freeing adds constants
    for (const std::unique_ptr<Value>& constant : graph.initializers())
      if (constant->constant())
        constants.push_back(constant.get());
    for (Value* constant : constants)
      count(*constant);
    for (Node* node : nodes) {
      if (node->is("Constant") && node->results().size() == 1 && node->result().constant())
        count(node->result());
      visit(*node);
      if (obstacle)
        return obstacle;
    }
    return std::nullopt;
  }

private:
  void count(Value& constant) {
    tables.free(constant);
    numbers.count(constant);
  }

  void refuse(const Node& node, std::string why) {
    if (!obstacle)
      obstacle = Obstacle{&node, std::move(why)};
  }

  void visit(Node& node) {
    const bool isTouched = llvm::any_of(node.operands(), [&](const Use& use) {
      return use.value() && symbols.isFreed(*use.value());
    });
    if (!node.subgraphs().empty()) {
      if (isTouched || llvm::any_of(capturedValues(node),
                                    [&](const Value* value) { return symbols.isFreed(*value); }))
        refuse(node, "a branch or loop depends on it");
      return;
    }
    if (!isTouched && !numbers.freesConstants(node)) {
      for (Value& result : node.results())
        if (result.type().hasRank())
          numbers.countComputed(result);
      return;
    }
    if (isTouched)
      adapt(node);
    if (!obstacle)
      infer(node);
  }

  /// Frees extents in the node itself.
  void adapt(Node& node) {
    if (node.is("Range"))
      numbers.freesConstants(node);
    if (elementFunction(node) || node.is("MatMul"))
      return adaptBroadcast(node);
    const std::optional<MovementKind> kind = movementKind(node);
    if (!kind || !movedOperand(node))
      return;
    switch (*kind) {
    case MovementKind::Reshape:
      return adaptReshape(node);
    case MovementKind::Broadcast:
      return adaptExpand(node);
    case MovementKind::Slice:
      return adaptSlice(node);
    case MovementKind::Gather:
      return adaptGather(node);
    case MovementKind::Concat:
      return adaptConcat(node);
    default:
      return;
    }
  }

  void adaptReshape(Node& node) {
    if (!node.is("Reshape"))
      return;
    const Value& data = *movedOperand(node);
    const TensorType& to = node.result().type();
    if (!to.hasRank() || !data.type().hasRank() ||
        llvm::any_of(to.shape(), [](const Dim& extent) { return extent.isUnknown(); }))
      return refuse(node, "the shape of its result is not known");
    const std::optional<Shape> shape = alignedReshape(
        data.type().shape(), to.shape(), [&](const Dim& extent) { return symbols.was(extent); },
        [&](unsigned axis) { return isRepeated(node.result(), axis); });
    if (!shape)
      return refuse(node, formatted("{} does not line up with the shape {}", data.type().str(),
                                    listText(to.shape())));
    if (const auto known = node.operand(1)->knownIntegers();
        known && llvm::ArrayRef<Dim>(*known) == llvm::ArrayRef<Dim>(*shape))
      return;
    if (Value* target = reshapeTarget(node, data.type(), *shape))
      node.setOperand(1, target);
    else
      refuse(node, formatted("no input determines the shape {}", listText(*shape)));
  }

  /// Whether a reader repeats the only entry of an axis, as for heads that share keys: the axis
  /// then does not belong to a symbol. Checks a few readers, and through those that keep the axis.
  static bool isRepeated(const Value& value, unsigned axis) {
    constexpr unsigned mostReaders = 64;
    llvm::SmallVector<std::pair<const Value*, unsigned>, 16> pending(1, {&value, axis});
    unsigned readers = 0;
    while (!pending.empty()) {
      const auto [next, place] = pending.pop_back_val();
      for (const Use& use : next->uses()) {
        if (++readers > mostReaders)
          return false;
        const Node& reader = use.user();
        const std::optional<Movement> movement = movementOf(reader.result());
        const TensorType& to = reader.result().type();
        if (!to.hasRank() || (movement && movedOperand(reader) != next && !reader.is("Concat")))
          continue;
        if (movement && movement->is(MovementKind::Permutation) && movement->axes) {
          const auto* moved = llvm::find(*movement->axes, place);
          pending.push_back(
              {&reader.result(), static_cast<unsigned>(moved - movement->axes->begin())});
          continue;
        }
        const llvm::ArrayRef<Dim> from = next->type().shape();
        const bool keepsAxis = elementFunction(reader) || movement;
        if (!keepsAxis || to.rank() <= place ||
            (to.rank() != from.size() &&
             !std::equal(from.begin(), from.begin() + place, to.shape().begin())))
          continue;
        if (movement && movement->is(MovementKind::Broadcast) && to.rank() == from.size() &&
            to.dim(place).value().value_or(0) > 1)
          return true;
        if (to.dim(place).value() == 1)
          pending.push_back({&reader.result(), place});
      }
    }
    return false;
  }

  /// The shape operand of a Reshape to `shape`: 0 for extents that are kept, -1 for at most one
  /// other.
  Value* reshapeTarget(const Node& node, const TensorType& from, llvm::ArrayRef<Dim> shape) {
    llvm::SmallVector<int64_t, 6> target;
    bool isInferred = false;
    for (unsigned axis = 0; axis < shape.size(); ++axis) {
      const auto number = shape[axis].value();
      const bool stays = axis < from.rank() && from.dim(axis).isKnownEqual(shape[axis]) &&
                         node.intAttr("allowzero", 0) == 0;
      if (number && *number != 0) {
        target.push_back(*number);
      } else if (stays) {
        target.push_back(0);
      } else if (!number && !isInferred) {
        target.push_back(-1);
        isInferred = true;
      } else {
        return symbols.list(shape);
      }
    }
    return &symbols.builder().value(ints(target));
  }

  void adaptExpand(Node& node) {
    const auto wanted = node.is("Expand") ? node.operand(1)->knownIntegers() : std::nullopt;
    if (!wanted || !node.operand(0)->type().hasRank())
      return;
    const llvm::ArrayRef<Dim> from = node.operand(0)->type().shape();
    const std::optional<Shape> asMask = symbols.freedList(*wanted);
    Shape shape;
    for (size_t axis = 0; axis < wanted->size(); ++axis) {
      const size_t fromEnd = wanted->size() - axis;
      const Dim& number = (*wanted)[axis];
      const Dim extent = fromEnd <= from.size() ? from[from.size() - fromEnd] : Dim::fixed(1);
      const bool isOne = extent.value() == 1;
      if (symbols.isFreed(extent)) {
        if (number.value() != 1 && !number.isKnownEqual(symbols.was(extent)) &&
            !number.isKnownEqual(extent))
          return refuse(node, formatted("it repeats {} rows {} times", extent.str(), number.str()));
        shape.push_back(Dim::fixed(1)); // keeps the extent
      } else if (isOne && axis == 0 && wanted->size() > 1 &&
                 symbols.exported().batch.value() != 1 &&
                 number.isKnownEqual(symbols.exported().batch)) {
        shape.push_back(symbols.freed().batch);
      } else {
        shape.push_back(isOne && asMask ? (*asMask)[axis] : number);
      }
    }
    Value* target = symbols.list(shape);
    if (!target)
      return refuse(node, formatted("no input determines the shape {}", listText(shape)));
    node.setOperand(1, target);
  }

  void adaptSlice(Node& node) {
    for (const Value& result : node.results()) {
      const std::optional<Movement> movement = movementOf(result);
      if (result.isUnused())
        continue;
      if (!movement || !movement->axes)
        return refuse(node, "the part that it keeps is not known");
      for (size_t i = 0; i < movement->axes->size(); ++i) {
        const Dim& extent = movedOperand(node)->type().dim((*movement->axes)[i]);
        if (!symbols.isFreed(extent))
          continue;
        if (!node.is("Slice"))
          return refuse(node, formatted("it splits {} rows", extent.str()));
        if (!adaptRange(node, extent, movement->ranges[i]))
          return refuse(node, formatted("it keeps rows of {} by constant indices", extent.str()));
      }
    }
  }

  /// A range of an axis that became a symbol: all of it, or a range counted from its end.
  bool adaptRange(Node& node, const Dim& extent, const MovementRange& range) {
    const auto start = range.start.known.value();
    const Dim& end = range.end.known;
    const Dim before = symbols.was(extent);
    if (range.step.known.value() != 1)
      return false;
    if (symbols.isFreed(range.start.known) || symbols.isFreed(end))
      return true; // already computed from extents
    if (!start || !before.isKnownLessEqual(end))
      return false;
    if (*start == 0 && before.value() == 1 && end.value().value_or(0) < toEnd)
      return false; // the first entry, or all
    if (*start > 0 && before.value() == *start + 1)
      return setEntry(node, 1, range.start, -1) && setEntry(node, 2, range.end, toEnd);
    return (*start == 0 || *start == -1) && setEntry(node, 2, range.end, toEnd);
  }

  static constexpr int64_t toEnd = std::numeric_limits<int32_t>::max();

  /// Replaces a number in an operand of a Slice.
  bool setEntry(Node& node, unsigned operand, const MovementNumber& number, int64_t value) {
    auto entries = node.operand(operand)->knownIntegers();
    if (!entries || number.list != node.operand(operand) || number.entry >= entries->size())
      return false;
    (*entries)[number.entry] = Dim::fixed(value);
    Value* list = symbols.list(*entries);
    if (list)
      node.setOperand(
          operand, &symbols.builder().castTo(*list, node.operand(operand)->type().elementType()));
    return list != nullptr;
  }

  /// Constants that are joined with one row per batch row or token need the same number of rows.
  void adaptConcat(Node& node) {
    const std::optional<Movement> movement = movementOf(node.result());
    if (!movement || !movement->axis() || !node.result().type().hasRank())
      return refuse(node, "the values that it joins are not known");
    const unsigned rank = node.result().type().rank();
    for (unsigned operand = 0; operand < node.operands().size(); ++operand) {
      Value& value = *node.operand(operand);
      Shape shape(rank, Dim::fixed(1));
      for (unsigned axis = 0; axis < rank; ++axis)
        if (axis != *movement->axis() && value.type().dim(axis).value() == 1)
          for (const Use& other : node.operands())
            if (symbols.isFreed(other.value()->type().dim(axis)))
              shape[axis] = other.value()->type().dim(axis);
      if (llvm::all_of(shape, [](const Dim& extent) { return extent.value() == 1; }))
        continue;
      Value* target = symbols.list(shape);
      if (!target)
        return refuse(node, formatted("no input determines the shape {}", listText(shape)));
      node.setOperand(operand,
                      &symbols.builder().node("Expand", {value, *target}, {}, "freed_rows"));
    }
  }

  void adaptGather(Node& node) {
    const std::optional<Movement> movement = movementOf(node.result());
    const Value& data = *movedOperand(node);
    if (!movement || !movement->axis())
      return refuse(node, "the part that it selects is not known");
    const Dim& extent = data.type().dim(*movement->axis());
    if (!symbols.isFreed(extent) || data.knownIntegers())
      return;
    const auto picked = node.operand(movement->indices)->knownIntegers();
    if (!picked)
      return; // by another value
    const auto before = symbols.was(extent).value();
    const auto place = picked->size() == 1 ? picked->front().value() : std::nullopt;
    const bool isLast = place && (*place == -1 || (*place > 0 && before == *place + 1));
    if (!isLast)
      return refuse(node, formatted("it selects rows of {} by constant indices", extent.str()));
    const Value& indices = *node.operand(movement->indices);
    const TensorRef last = indices.type().rank() == 0 ? int64Scalar(-1) : ints({-1});
    if (indices.type().rank() > 1)
      return refuse(node, "it selects rows by a table");
    node.setOperand(movement->indices, &symbols.builder().castTo(symbols.builder().value(last),
                                                                 indices.type().elementType()));
  }

  /// If an extent became a symbol, no operand may keep the number.
  void adaptBroadcast(Node& node) {
    const unsigned last = node.is("MatMul") ? 2 : 0; // multiplied axes are compared in any case
    size_t rank = 0;
    for (const Use& use : node.operands())
      if (use.value() && use.value()->type().hasRank())
        rank = std::max<size_t>(rank, use.value()->type().rank());
    for (size_t fromEnd = last + 1; fromEnd <= rank; ++fromEnd) {
      std::optional<Dim> symbol;
      for (const Use& use : node.operands())
        if (const Dim* extent = extentFromEnd(use.value(), fromEnd);
            extent && symbols.isFreed(*extent))
          symbol = *extent;
      if (!symbol)
        continue;
      for (unsigned operand = 0; operand < node.operands().size(); ++operand) {
        Value* value = node.operand(operand);
        const Dim* extent = extentFromEnd(value, fromEnd);
        if (!extent || symbols.isFreed(*extent) || extent->value() == 1 ||
            !extent->isKnownEqual(symbols.was(*symbol)))
          continue;
        Value* narrowed = repeated(*value, value->type().rank() - fromEnd, *symbol);
        if (!narrowed)
          return refuse(node, formatted("'{}', {}, has numbers for {} rows of {}", value->name(),
                                        value->type().str(), extent->str(), symbol->str()));
        node.setOperand(operand, narrowed);
      }
    }
  }

  static const Dim* extentFromEnd(const Value* value, size_t fromEnd) {
    if (!value || !value->type().hasRank() || value->type().rank() < fromEnd)
      return nullptr;
    return &value->type().shape()[value->type().rank() - fromEnd];
  }

  /// The value with one entry of an axis along which all entries are equal; null if they are not,
  /// and if they could define visible keys: a mask for a few keys does not determine the mask for
  /// more.
  Value* repeated(Value& value, size_t axis, const Dim& symbol) {
    const std::optional<double> number = uniformValue(value);
    if (!number && !isRepeatedAlong(value, axis))
      return nullptr;
    const bool isOfKeys =
        !symbol.isKnownEqual(symbols.freed().tokens) && !symbol.isKnownEqual(symbols.freed().batch);
    if (isOfKeys && (!number || *number > hidingThreshold))
      return nullptr;
    return &symbols.builder().slice(value, static_cast<int64_t>(axis), 0, 1);
  }

  /// Whether an operator repeats the only entry of its operand along the axis of its result.
  static bool isRepeatedAlong(const Value& value, size_t axis) {
    const Value* repeated = &value;
    while (repeated->producer() && movementKind(*repeated->producer()) == MovementKind::Convert)
      repeated = movedOperand(*repeated->producer());
    const Node* producer = repeated->producer();
    if (!producer || movementKind(*producer) != MovementKind::Broadcast)
      return false;
    const TensorType& from = movedOperand(*producer)->type();
    const size_t added = from.hasRank() ? value.type().rank() - from.rank() : 0;
    return from.hasRank() && (axis < added || from.dim(axis - added).value() == 1);
  }

  /// All known extents of the results must be inferred again.
  void infer(Node& node) {
    llvm::SmallVector<TensorType, 2> before;
    for (Value& result : node.results()) {
      before.push_back(result.type());
      result.setType(TensorType(result.type().elementType()));
    }
    if (llvm::Error error = inferNode(node))
      return refuse(node, takeDiagnostic(std::move(error)).message);
    for (unsigned i = 0; i < before.size(); ++i) {
      Value& result = node.result(i);
      if (result.isUnused() && !result.isGraphOutput()) {
        if (!result.type().hasRank())
          result.setType(before[i]);
        continue;
      }
      if (!before[i].hasRank())
        continue; // it was unknown before
      if (!result.type().hasRank() || result.type().rank() != before[i].rank())
        return refuse(node, "the shape of its result does not follow from that of its operands");
      for (unsigned axis = 0; axis < before[i].rank(); ++axis) {
        const Dim& now = result.type().dim(axis);
        const Dim& was = before[i].dim(axis);
        if (!was.isUnknown() && !symbols.was(now).isKnownEqual(was))
          return refuse(
              node, formatted("its result, {}, becomes {}", before[i].str(), result.type().str()));
      }
    }
  }

  Graph& graph;
  ExtentSymbols& symbols;
  FreedNumbers numbers;
  FreedTables tables;
  std::optional<Obstacle> obstacle;
};

} // namespace

std::optional<Obstacle> freeNodes(Graph& graph, ExtentSymbols& symbols) {
  return FreedNodes(graph, symbols).run();
}

} // namespace kvopt::extents
