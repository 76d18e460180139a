// Follows the results of attention forward.
#include "passes/analysis/tokens/row_carriers.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "ir/op.h"
#include "passes/analysis/tokens/row_axes.h"
#include "passes/analysis/tokens/row_operators.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <unordered_map>

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr const char* mixes = "it combines the rows of several tokens";
constexpr const char* unknownEffect = "it is not known to keep the rows of tokens separate";

/// Rows of tokens in a value.
struct Rows {
  RowAxes axes;
  /// Whether rows of earlier tokens are joined to those of the step, as in a cache: only attention
  /// and outputs may read these.
  bool isJoined = false;
  /// The result that selected some tokens and thereby moved them; null if all tokens are in place.
  const Value* pick = nullptr;
};

llvm::ArrayRef<Dim> shapeOf(const Value& value) {
  return value.type().hasRank() ? llvm::ArrayRef<Dim>(value.type().shape()) : llvm::ArrayRef<Dim>();
}

/// Whether a product transposes its first operand.
bool transposesFirst(const Node& node) {
  return node.intAttr("transA", 0) != 0 || node.intAttr("transBatchA", 0) != 0 ||
         node.intAttr("transBatchB", 0) != 0;
}

/// The axes after a movement that keeps all rows; nullopt if that is unknown.
std::optional<RowAxes> movedAxes(const Movement& movement, const RowAxes& data,
                                 llvm::ArrayRef<Dim> shape) {
  switch (movement.kind) {
  case MovementKind::Same:
  case MovementKind::Convert:
    return data;
  case MovementKind::Permutation:
    return movement.axes ? std::optional(data.permuted(*movement.axes)) : std::nullopt;
  case MovementKind::Reshape:
    return data.reshaped(shape);
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes: {
    RowAxes result = data;
    if (!movement.axes)
      return std::nullopt;
    if (movement.is(MovementKind::InsertAxes))
      for (const unsigned axis : *movement.axes)
        result.insert(axis, Dim::fixed(1));
    else
      for (const unsigned axis : llvm::reverse(*movement.axes))
        result.remove(axis);
    return result;
  }
  case MovementKind::Broadcast:
    return data.rank() <= shape.size() ? std::optional(data.broadcast(shape)) : std::nullopt;
  case MovementKind::Repeat: {
    RowAxes result = data;
    for (unsigned axis = 0; axis < data.rank(); ++axis) {
      const bool isOnce = axis < movement.counts.size() && movement.counts[axis].known.value() == 1;
      if (data.hasRows(axis) && !isOnce)
        return std::nullopt;
      if (!isOnce && axis < shape.size())
        result.replace(axis, shape[axis]);
    }
    return result;
  }
  case MovementKind::Slice:
  case MovementKind::Gather:
  case MovementKind::PointGather:
  case MovementKind::Concat:
    break;
  }
  return std::nullopt;
}

/// Known rows of the visited values.
class KnownRows {
protected:
  void refuse(std::string name, std::string why) {
    if (!carrier)
      carrier = RowCarrier{std::move(name), std::move(why)};
  }
  void refuse(const Node& node, llvm::StringRef why) {
    const std::string name = node.name().empty() && !node.results().empty()
                                 ? node.result(0).name().str()
                                 : node.name().str();
    refuse(name, formatted("{}: {}", node.op().str(), why));
  }

  const Rows* rowsOf(const Value* value) const {
    const auto entry = rows.find(value);
    return value && entry != rows.end() ? &entry->second : nullptr;
  }

  void set(const Value& value, Rows found) { rows[&value] = std::move(found); }
  void setAll(const Node& node, const Rows& found) {
    for (const Value& result : node.results())
      if (!result.isAbsent())
        set(result, found);
  }

  /// Rows of an operator that computes each row from the same row of its operands. Refuses other
  /// operators.
  std::optional<Rows> joinedRows(const Node& node, llvm::ArrayRef<Dim> shape) {
    std::optional<Rows> joined;
    for (const Use& use : node.operands()) {
      const Rows* found = rowsOf(use.value());
      if (!found)
        continue;
      Rows own{found->axes.broadcast(shape), found->isJoined, found->pick};
      if (found->axes.rank() > shape.size() || (joined && !joined->axes.hasRowsOf(own.axes)) ||
          (joined && (joined->isJoined != own.isJoined || joined->pick != own.pick))) {
        refuse(node, mixes);
        return std::nullopt;
      }
      if (!joined)
        joined = std::move(own);
    }
    return joined;
  }

  /// Whether selected rows are broadcast over all tokens again.
  bool spreads(const Node& node, const Rows& found) const {
    const llvm::ArrayRef<Dim> shape = shapeOf(node.result(0));
    for (size_t fromEnd = 1; found.pick && fromEnd <= shape.size(); ++fromEnd) {
      const auto extentOf = [&](const Use& use) {
        const llvm::ArrayRef<Dim> own = use.value() ? shapeOf(*use.value()) : llvm::ArrayRef<Dim>();
        return fromEnd <= own.size() ? own[own.size() - fromEnd] : Dim::fixed(1);
      };
      const auto hasExtent = [&](const Dim& extent) {
        return llvm::any_of(node.operands(), [&](const Use& use) {
          return rowsOf(use.value()) && extentOf(use).isKnownEqual(extent);
        });
      };
      for (const Use& use : node.operands())
        if (!rowsOf(use.value()) && mayCountTokens(extentOf(use)) && !hasExtent(extentOf(use)))
          return true;
    }
    return false;
  }

  /// Whether a broadcast repeats its operand along a possible token axis.
  bool repeats(const Value& operand, const Value& result) const {
    const llvm::ArrayRef<Dim> from = shapeOf(operand);
    const llvm::ArrayRef<Dim> to = shapeOf(result);
    for (size_t fromEnd = 1; fromEnd <= to.size(); ++fromEnd) {
      const Dim& extent = to[to.size() - fromEnd];
      const bool isSame =
          fromEnd <= from.size() && from[from.size() - fromEnd].isKnownEqual(extent);
      if (!isSame && mayCountTokens(extent))
        return true;
    }
    return false;
  }

  bool mayCountTokens(const Dim& extent) const {
    return extent.value() != 1 &&
           (extent.isUnknown() ||
            llvm::any_of(tokens, [&](const Dim& count) { return count.isKnownEqual(extent); }));
  }

  llvm::SmallVector<Dim, 4> tokens; ///< number of queries of each attention
  std::optional<RowCarrier> carrier;

private:
  std::unordered_map<const Value*, Rows> rows; ///< references stay valid
};

class RowFollower : private KnownRows {
public:
  RowFollower(llvm::ArrayRef<AttentionSite> sites, const llvm::DenseSet<const Value*>& stateOutputs)
      : states(stateOutputs) {
    for (const AttentionSite& site : sites) {
      // The root of a missed site is an ordinary operator.
      if (!site.node || site.node->op().isOnnx() || site.node->results().empty() ||
          shapeOf(site.node->result(0)).size() != 4)
        continue;
      attentions.insert(site.node);
      if (site.isCross)
        toOtherSequences.insert(site.node);
      tokens.push_back(site.node->result(0).type().dim(2));
      for (const auto* cache : {&site.key, &site.value})
        if (*cache && (*cache)->writer)
          writers[(*cache)->writer] = (*cache)->axis;
    }
  }

  std::optional<RowCarrier> run(const Graph& graph) {
    follow(graph);
    for (const Value* output : graph.outputs())
      if (states.contains(output) && rowsOf(output))
        refuse(output->name().str(), "later steps read this state");
    return std::move(carrier);
  }

private:
  void follow(const Graph& graph) {
    for (const Node& node : graph.nodes())
      if (!carrier)
        visit(node);
  }

  void visit(const Node& node) {
    if (attentions.contains(&node))
      return visitAttention(node);
    if (!node.subgraphs().empty())
      return visitSubgraphs(node);
    if (node.is("Shape") || node.is("Size") ||
        llvm::none_of(node.operands(), [&](const Use& use) { return rowsOf(use.value()); }))
      return;
    if (hasUnknownOperands(node))
      return refuse(node, unknownEffect);
    if (const auto writer = writers.find(&node); writer != writers.end())
      return visitWriter(node, writer->second);
    if (node.is("Gather"))
      return visitGather(node);
    if (node.is("GatherND"))
      return visitPoints(node);
    if (node.is("GatherElements") || node.is("ScatterElements"))
      return visitElements(node);
    if (node.is("Concat"))
      return visitConcat(node);
    if (const std::optional<MovementKind> kind = movementKind(node))
      return visitMovement(node, *kind);
    if (elementFunction(node))
      return visitPointwise(node);
    if (isRowProduct(node) || isGemm(node) || node.is("com.microsoft::FusedMatMul"))
      return visitProduct(node);
    if (node.op().type() == "RotaryEmbedding" || node.is("QuantizeLinear") ||
        node.is("DequantizeLinear"))
      return visitRowFunction(node);
    if (quantizesDynamically(node))
      return refuse(node, "dynamic quantization has one scale over all tokens");
    visitCombined(node);
  }

  /// Both branches of an If return the same rows; loops are not followed.
  void visitSubgraphs(const Node& node) {
    const bool readsRows =
        llvm::any_of(node.operands(), [&](const Use& use) { return rowsOf(use.value()); });
    for (const Graph* nested : node.subgraphs()) {
      follow(*nested);
      if (carrier)
        return;
      for (unsigned i = 0; i < nested->outputs().size(); ++i) {
        const Rows* found = rowsOf(nested->outputs()[i]);
        if (!found || i >= node.results().size())
          continue;
        if (!node.is("If"))
          return refuse(node, unknownEffect);
        const Rows* other = rowsOf(&node.result(i));
        if (other && !other->axes.hasRowsOf(found->axes))
          return refuse(node, "its branches have rows in different layouts");
        set(node.result(i), *found);
      }
    }
    if (!node.is("If") && (readsRows || readsRowsInside(node)))
      refuse(node, unknownEffect);
  }

  bool readsRowsInside(const Node& node) const {
    return llvm::any_of(capturedValues(node), [&](const Value* value) { return rowsOf(value); });
  }

  /// Keys and values may be rows of any tokens, one row each.
  void visitAttention(const Node& node) {
    const auto hasOtherRows = [](const Rows& found) {
      for (unsigned axis = 0; axis < found.axes.rank(); ++axis)
        if (axis != 0 && axis != 2 && found.axes.hasRows(axis))
          return true;
      return false;
    };
    for (const Use& use : node.operands()) {
      const Rows* found = rowsOf(use.value());
      if (!found)
        continue;
      const bool isKeys = use.operandIndex() == 1 || use.operandIndex() == 2;
      if (use.operandIndex() > 2 || (isKeys && toOtherSequences.contains(&node)) ||
          (isKeys ? found->pick != nullptr : found->isJoined) || hasOtherRows(*found))
        return refuse(node, "its operands are not one row for each token");
    }
    const Rows* query = rowsOf(node.operand(0));
    set(node.result(0),
        {RowAxes(shapeOf(node.result(0)), {0U, 2U}), false, query ? query->pick : nullptr});
  }

  void visitWriter(const Node& node, unsigned axis) {
    for (const Use& use : node.operands())
      if (const Rows* found = rowsOf(use.value()); found && found->pick)
        return refuse(node, "new rows of a cache are not the rows of all tokens");
    setAll(node, {RowAxes(shapeOf(node.result(0)), {0U, axis}), true, nullptr});
  }

  void visitPointwise(const Node& node) {
    if (!node.result(0).type().hasRank())
      return refuse(node, "the rank of its result is not known");
    const auto joined = joinedRows(node, shapeOf(node.result(0)));
    if (!joined)
      return;
    if (spreads(node, *joined))
      return refuse(node, "it broadcasts the rows of some tokens to all");
    setAll(node, *joined);
  }

  /// Rows of the first operand; the other operands are the same for every token.
  void visitRowFunction(const Node& node) {
    const Rows* first = rowsOf(node.operand(0));
    if (!first || llvm::any_of(node.operands(), [&](const Use& use) {
          return use.operandIndex() > 0 && rowsOf(use.value());
        }))
      return refuse(node, "its parameters depend on tokens");
    setAll(node, *first);
  }

  void visitProduct(const Node& node) {
    const Rows* left = rowsOf(node.operand(0));
    const Rows* right = rowsOf(node.operand(1));
    const llvm::ArrayRef<Dim> shape = shapeOf(node.result(0));
    const bool othersHaveRows = llvm::any_of(node.operands(), [&](const Use& use) {
      return use.operandIndex() > 1 && rowsOf(use.value());
    });
    if ((!left && !right) || othersHaveRows)
      return refuse(node, mixes);
    if (left && right)
      return visitBatchedProduct(node);
    const Rows& found = left ? *left : *right;
    const unsigned rank = found.axes.rank();
    const bool isPlain = left ? !transposesFirst(node) : node.is("MatMul");
    if (rank < 2 || shape.size() < 2 || !isPlain)
      return refuse(node, unknownEffect);
    const unsigned summed = left ? rank - 1 : rank - 2;
    if (found.axes.hasRows(summed))
      return refuse(node, mixes);
    Rows result = found;
    result.axes.replace(summed, shape[left ? shape.size() - 1 : shape.size() - 2]);
    result.axes = result.axes.broadcast(shape);
    setAll(node, result);
  }

  /// Each token's matrix times its own row: the matrices of the experts that it selected.
  void visitBatchedProduct(const Node& node) {
    const llvm::ArrayRef<Dim> shape = shapeOf(node.result(0));
    const auto joined = node.is("MatMul") ? joinedRows(node, shape) : std::nullopt;
    if (!joined || shape.size() < 3)
      return refuse(node, mixes);
    const unsigned rank = joined->axes.rank();
    for (const Use& use : node.operands()) {
      const RowAxes& own = rowsOf(use.value())->axes;
      if (own.rank() < 3 || own.hasRows(own.rank() - 1) || own.hasRows(own.rank() - 2))
        return refuse(node, mixes);
    }
    Rows result = *joined;
    result.axes.replace(rank - 2, shape[rank - 2]);
    result.axes.replace(rank - 1, shape[rank - 1]);
    setAll(node, result);
  }

  /// Operators that combine the elements of some axes.
  void visitCombined(const Node& node) {
    const Rows* found = rowsOf(node.operand(0));
    // A value that a normalization adds to its operand first has its shape.
    if (const Rows* added = rowsOf(node.operand(1)); !found && added)
      found = added->axes.rank() == shapeOf(*node.operand(0)).size() ? added : nullptr;
    const auto rank = found ? found->axes.rank() : 0;
    const auto combined = found ? combinedAxes(node, rank) : std::nullopt;
    if (!combined)
      return refuse(node, unknownEffect);
    for (const int64_t axis : *combined)
      if (axis < 0 || axis >= rank || found->axes.hasRows(static_cast<unsigned>(axis)))
        return refuse(node, mixes);
    for (const Use& use : node.operands())
      if (const Rows* other = rowsOf(use.value()); other && !other->axes.hasRowsOf(found->axes))
        return refuse(node, mixes);
    for (const Value& result : node.results()) {
      if (result.isAbsent() || result.isUnused())
        continue;
      const llvm::ArrayRef<Dim> shape = shapeOf(result);
      Rows own = *found;
      for (int64_t axis = rank; axis-- > 0;)
        if (llvm::is_contained(*combined, axis)) {
          const auto place = static_cast<unsigned>(axis);
          if (shape.size() == static_cast<size_t>(rank))
            own.axes.replace(place, shape[place]);
          else
            own.axes.remove(place);
        }
      if (own.axes.rank() != shape.size())
        return refuse(node, "the rank of its result is not known");
      set(result, std::move(own));
    }
  }

  void visitGather(const Node& node) {
    const Rows* data = rowsOf(node.operand(0));
    const Rows* indices = rowsOf(node.operand(1));
    const std::optional<Movement> movement = movementOf(node.result(0));
    const Value& other = *node.operand(data ? 1 : 0);
    if ((data && indices) || !movement || !movement->axis() || !other.type().hasRank())
      return refuse(node, "it selects rows by values that depend on tokens");
    const unsigned axis = *movement->axis();
    if (indices) {
      Rows result = *indices;
      result.axes = RowAxes(shapeOf(other), {});
      result.axes.replace(axis, indices->axes);
      return setAll(node, result);
    }
    Rows result = *data;
    const bool picks = data->axes.hasRows(axis);
    llvm::SmallVector<unsigned, 4> all;
    for (unsigned i = 0; picks && i < shapeOf(other).size(); ++i)
      all.push_back(i);
    result.axes.replace(axis, RowAxes(shapeOf(other), all));
    if (picks && data->pick)
      return refuse(node, mixes);
    if (picks)
      result.pick = &node.result(0);
    setAll(node, result);
  }

  /// The same for indices into the first axes of the data.
  void visitPoints(const Node& node) {
    const Rows* data = rowsOf(node.operand(0));
    const Rows* indices = rowsOf(node.operand(1));
    const llvm::ArrayRef<Dim> points = shapeOf(*node.operand(1));
    const llvm::ArrayRef<Dim> shape = shapeOf(*node.operand(0));
    const std::optional<int64_t> count = points.empty() ? std::nullopt : points.back().value();
    if ((data && indices) || !count || node.intAttr("batch_dims", 0) != 0 || *count < 1 ||
        *count > static_cast<int64_t>(shape.size()))
      return refuse(node, "it selects rows by values that depend on tokens");
    const auto picked = static_cast<unsigned>(*count);
    Rows result = data ? *data : *indices;
    RowAxes entries = data ? data->axes : RowAxes(shape, {});
    for (unsigned axis = 0; axis < picked; ++axis) {
      if (entries.hasRows(0))
        return refuse(node, "it selects tokens by position");
      entries.remove(0);
    }
    const auto last = static_cast<unsigned>(points.size() - 1);
    RowAxes places = indices ? indices->axes : RowAxes(points, {});
    if (places.hasRows(last))
      return refuse(node, mixes);
    places.replace(last, entries);
    result.axes = std::move(places);
    setAll(node, result);
  }

  /// Elements that are selected or written by their index on one axis; on all other axes, an
  /// operand's index is the result's.
  void visitElements(const Node& node) {
    const llvm::ArrayRef<Dim> shape = shapeOf(node.result(0));
    const std::optional<unsigned> along =
        normalizedAxis(node.intAttr("axis", 0), static_cast<unsigned>(shape.size()));
    auto joined = joinedRows(node, shape);
    if (!joined)
      return;
    if (!along || joined->axes.hasRows(*along))
      return refuse(node, "it selects tokens by position");
    joined->axes.replace(*along, shape[*along]);
    setAll(node, *joined);
  }

  void visitConcat(const Node& node) {
    const std::optional<Movement> movement = movementOf(node.result(0));
    const std::optional<unsigned> joint = movement ? movement->axis() : std::nullopt;
    const llvm::ArrayRef<Dim> shape = shapeOf(node.result(0));
    const unsigned along = joint.value_or(0);
    if (!joint || along >= shape.size())
      return refuse(node, "the axis on which it joins rows is not known");
    std::optional<Rows> joined;
    for (const Use& use : node.operands()) {
      const Rows* found = rowsOf(use.value());
      if (!found)
        continue;
      if (found->axes.rank() != shape.size() || found->axes.hasRows(along))
        return refuse(node, "it joins the rows of tokens with other rows");
      Rows own = *found;
      own.axes.replace(along, shape[along]);
      if (joined && (!joined->axes.hasRowsOf(own.axes) || joined->pick != own.pick ||
                     joined->isJoined != own.isJoined))
        return refuse(node, mixes);
      joined = std::move(own);
    }
    setAll(node, *joined);
  }

  void visitMovement(const Node& node, MovementKind kind) {
    const Rows* data = rowsOf(movedOperand(node));
    const bool otherRows = llvm::any_of(
        node.operands(), [&](const Use& use) { return rowsOf(use.value()) && !isMoved(use); });
    if (!data || otherRows)
      return refuse(node, "the movement depends on tokens");
    if (kind == MovementKind::Slice)
      return visitSlice(node, *data);
    const std::optional<Movement> movement = movementOf(node.result(0));
    std::optional<RowAxes> moved;
    if (movement)
      moved = movedAxes(*movement, data->axes, shapeOf(node.result(0)));
    if (!moved || moved->rank() != shapeOf(node.result(0)).size())
      return refuse(node, "the movement of the tokens' rows is not known");
    Rows result{std::move(*moved), data->isJoined, data->pick};
    if (kind == MovementKind::Broadcast && result.pick &&
        repeats(*movedOperand(node), node.result(0)))
      return refuse(node, "it broadcasts the rows of some tokens to all");
    setAll(node, result);
  }

  void visitSlice(const Node& node, const Rows& data) {
    for (const Value& result : node.results()) {
      if (result.isAbsent())
        continue;
      const std::optional<Movement> movement = movementOf(result);
      if (!movement || !movement->axes || shapeOf(result).size() != data.axes.rank())
        return refuse(node, "the part that it keeps is not known");
      Rows kept = data;
      for (const unsigned axis : *movement->axes) {
        const bool picks = data.axes.hasRows(axis);
        kept.axes.replace(axis, shapeOf(result)[axis], picks);
        if (picks && data.pick)
          return refuse(node, mixes);
        if (picks && !data.isJoined)
          kept.pick = &result;
      }
      set(result, std::move(kept));
    }
  }

  llvm::DenseSet<const Node*> attentions;
  llvm::DenseSet<const Node*> toOtherSequences;
  llvm::DenseMap<const Node*, unsigned> writers;
  const llvm::DenseSet<const Value*>& states;
};

} // namespace

std::optional<RowCarrier> findRowCarrier(const Graph& graph, llvm::ArrayRef<AttentionSite> sites,
                                         const llvm::DenseSet<const Value*>& states) {
  return RowFollower(sites, states).run(graph);
}

} // namespace kvopt::analysis
