// Cuts a cache that holds several (keys and values, or those of all layers) into one for each.
//
//   before   key = Gather<0>(past, 0)   value = Gather<0>(past, 1)     past [2,B,H,P,D]
//            present = Concat<0>(Unsqueeze(Concat<2>(key, k)), Unsqueeze(Concat<2>(value, v)))
//   after    past.0, past.1 [B,H,P,D]   present.0 = Concat<2>(past.0, k)   present.1 likewise
//
// The cache may be read in parts before or after its rows are appended, along any axis of a fixed
// extent; all its readers must use the same axis. Attention may read values computed from a part,
// but no operand of it may be computed from several. Parts are split again in the same way. Their
// original form is kept for the manifest.
#include "passes/transforms/cut_caches.h"

#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/cache_origins.h"
#include "passes/analysis/cache/driven_caches.h"
#include "passes/analysis/cache/part_readers.h"
#include "passes/analysis/movement/data_movement.h"
#include "passes/builders/attention_builder.h"
#include "passes/pass.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

#include <map>
#include <tuple>

namespace kvopt::transforms {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* splitCachesName = "split-caches";

/// Maximum number of nodes between a cache and its parts.
constexpr unsigned mostSteps = 64;

/// Readers of a cache, or of the cache with new rows.
struct CacheReads {
  llvm::SmallVector<PartReader, 8> parts;
  llvm::SmallVector<Node*, 4> shapes;
  llvm::SmallVector<const Value*, 4> holders; ///< the cache, and the cache with new rows
  llvm::SmallVector<Node*, 16> nodes;         ///< all readers of a holder
};

/// The part that an input is of an input of the model as it was read.
struct PartOfWhole {
  ManifestPart part;
  std::vector<ManifestExtent> whole;   ///< extents of that input
  llvm::SmallVector<unsigned, 6> axes; ///< for each axis here, the axis there
};

/// Cuts one graph input, and the output that continues it, along one axis.
class CacheCut {
public:
  CacheCut(Graph& cutGraph, Value& cutInput, CacheOrigins& cacheOrigins, PassContext& context)
      : graph(cutGraph), input(cutInput), origins(cacheOrigins),
        rewriter(graph, splitCachesName, context.journal, input.name()), build(rewriter) {}

  /// Chooses the axis and its cells; false if the cache is read otherwise than in parts, or if its
  /// output is not composed of the same number of parts.
  bool plan() {
    continued = continuationOf(input, origins);
    if (!continued || !input.type().hasRank() || !collect(input, mostSteps) || reads.parts.empty())
      return false;
    axis = reads.parts.front().axis;
    for (const PartReader& part : reads.parts) {
      if (part.axis != axis)
        return false;
      if (!llvm::is_contained(cells, part.cell))
        cells.push_back(part.cell);
    }
    llvm::sort(cells);
    int64_t end = 0;
    for (const Cell& cell : cells) {
      if (cell.start != end || cell.count < 1)
        return false;
      end += cell.count;
    }
    // Values joined along this axis have more than the parts, too.
    if (llvm::any_of(reads.holders, [&](const Value* holder) {
          return !holder->type().hasRank() || holder->type().dim(axis).value() != end;
        }))
      return false;
    // Keys and values have four axes. A fifth with an extent of 1 is redundant.
    const bool isSpare = input.type().rank() > 4;
    dropsAxis = llvm::all_of(reads.parts, [&](const PartReader& part) {
      return part.cell.count == 1 &&
             (isSpare || !part.hasAxis || isDroppedByReaders(*part.result, axis));
    });
    return cells.size() > 1 || dropsAxis;
  }

  /// Inputs of the parts, in order. Empty, with no change, if the rows of a part cannot be
  /// separated from those of others.
  llvm::SmallVector<Value*, 4> run() {
    llvm::SmallVector<Value*, 4> inputs = addInputs();
    llvm::SmallVector<Value*, 4> presents;
    llvm::SmallVector<Rewriter::Replacement, 8> rows;
    llvm::SmallVector<Rewriter::Replacement, 4> extents;
    if (!findPresents(inputs, presents) || !findRows(rows) || !findExtents(extents) ||
        !replaceAll(rows, extents)) {
      rewriter.discard();
      for (Value* added : inputs)
        graph.removeInput(*added);
      return {};
    }
    replaceOutput(presents);
    eraseWhole();
    origins.follow(llvm::SmallVector<const Value*, 4>(inputs.begin(), inputs.end()),
                   llvm::SmallVector<const Node*, 16>(surviving.begin(), surviving.end()));
    return inputs;
  }

  /// Results of a successful plan().
  const Value& output() const { return *continued; }
  llvm::ArrayRef<PartReader> readers() const { return reads.parts; }
  unsigned cutAxis() const { return axis; }
  bool hasDroppedAxis() const { return dropsAxis; }
  const Cell& cell(size_t index) const { return cells[index]; }

private:
  /// Records the readers of `holder`, which is the input or becomes of it in fewer than `steps`
  /// nodes; false for readers of all parts at once.
  bool collect(Value& holder, unsigned steps) {
    if (steps == 0 || (holder.isGraphOutput() && &holder != continued))
      return false;
    reads.holders.push_back(&holder);
    for (const Use& use : holder.uses()) {
      Node& reader = use.user();
      if (&reader.graph() != &graph)
        return false;
      reads.nodes.push_back(&reader);
      if (reader.is("Shape")) {
        reads.shapes.push_back(&reader);
      } else if (appendsRows(use) || keepsPlaces(use)) {
        if (!collect(reader.result(), steps - 1))
          return false;
      } else {
        llvm::SmallVector<PartReader, 2> found;
        if (isMoved(use))
          found = partsRead(reader);
        if (found.empty())
          return false;
        reads.parts.append(found.begin(), found.end());
      }
    }
    return true;
  }

  llvm::SmallVector<Value*, 4> addInputs() {
    llvm::SmallVector<Value*, 4> inputs;
    const TensorType& type = input.type();
    for (size_t i = 0; i < cells.size(); ++i) {
      Shape shape(type.shape().begin(), type.shape().end());
      shape[axis] = Dim::fixed(cells[i].count);
      if (dropsAxis)
        shape.erase(shape.begin() + axis);
      Value& added = graph.addInput(
          graph.freshName((input.name() + "." + llvm::Twine(static_cast<int64_t>(i))).str()),
          TensorType(type.elementType(), std::move(shape)));
      inputs.push_back(&added);
      parts[keyOf(input, cells[i], axis)] =
          dropsAxis ? &build.unsqueeze(added, static_cast<int64_t>(axis)) : &added;
    }
    return inputs;
  }

  /// The part of any value on the way to the output; null if other parts are mixed in.
  Value* part(Value& value, const Cell& cell, unsigned along) {
    auto [entry, isNew] = parts.try_emplace(keyOf(value, cell, along), nullptr);
    if (!isNew || depth == mostSteps)
      return entry->second;
    ++depth;
    entry->second = makePart(value, cell, along);
    --depth;
    return entry->second;
  }

  Value* makePart(Value& value, const Cell& cell, unsigned along) {
    const TensorType& type = value.type();
    if (!type.hasRank() || along >= type.rank())
      return nullptr;
    if (cell.start == 0 && type.dim(along).value() == cell.count)
      return &value;
    Node* node = value.producer();
    if (node && node->is("Concat"))
      return partOfConcat(*node, cell, along);
    if (node && !node->operands().empty() && appendsRows(node->operands().front()))
      return partOfUpdate(*node, cell, along);
    if (node)
      if (Value* moved = partOfMoved(*node, cell, along))
        return moved;
    if (origins.find(value) || value.graph().parentNode())
      return nullptr;
    return &build.slice(value, static_cast<int64_t>(along), cell.start, cell.start + cell.count);
  }

  Value* partOfConcat(Node& node, const Cell& cell, unsigned along) {
    const std::optional<Movement> movement = movementOf(node.result());
    if (!movement || !movement->axis())
      return nullptr;
    if (*movement->axis() != along) {
      llvm::SmallVector<Value*, 4> operands;
      for (const Use& use : node.operands()) {
        Value* made = use.value() ? part(*use.value(), cell, along) : nullptr;
        if (!made)
          return nullptr;
        operands.push_back(made);
      }
      return &createOfParts(node, *movement->axis(), operands, operands.size(), along);
    }
    int64_t start = 0;
    for (const Use& use : node.operands()) {
      const std::optional<int64_t> extent =
          use.value() ? use.value()->type().dim(along).value() : std::nullopt;
      if (!extent)
        return nullptr;
      if (cell.start >= start && cell.start + cell.count <= start + *extent)
        return part(*use.value(), {cell.start - start, cell.count}, along);
      start += *extent;
    }
    return nullptr;
  }

  Value* partOfUpdate(Node& node, const Cell& cell, unsigned along) {
    const bool isByElement = node.is("ScatterElements");
    int64_t rows = node.intAttr("axis", isByElement ? 0 : -2);
    if (rows < 0)
      rows += static_cast<int64_t>(node.result().type().rank());
    if (isByElement && rows != static_cast<int64_t>(along))
      return partOfScatter(node, static_cast<unsigned>(rows), cell, along);
    // A TensorScatter has one write index for each entry of the first axis.
    if (along == 0 && node.operands().size() > 2 && node.operand(2))
      return nullptr;
    Value* past = part(*node.operand(0), cell, along);
    Value* fresh =
        past && rows != static_cast<int64_t>(along) ? part(*node.operand(1), cell, along) : nullptr;
    if (!fresh)
      return nullptr;
    llvm::SmallVector<Value*, 4> operands = {past, fresh};
    for (const Use& use : node.operands().drop_front(2))
      operands.push_back(use.value());
    return &createOfParts(node, static_cast<unsigned>(rows), operands, 2, along);
  }

  /// New rows at places that are given element by element.
  Value* partOfScatter(Node& node, unsigned rows, const Cell& cell, unsigned along) {
    Value* past = part(*node.operand(0), cell, along);
    Value* fresh = past ? part(*node.operand(2), cell, along) : nullptr;
    if (!fresh)
      return nullptr;
    // The places along the axis are the same for a part.
    Value* index = node.operand(1);
    Node* expand = index->producer();
    if (expand && expand->is("Expand") && expand->operand(0)->type().hasRank() &&
        expand->operand(0)->type().rank() == index->type().rank() &&
        expand->operand(0)->type().dim(along).value() == 1)
      index =
          &build.node("Expand", {*expand->operand(0), build.node("Shape", {*fresh})}, {}, "places");
    else
      index = part(*index, cell, along);
    llvm::SmallVector<Value*, 3> operands = {past, index, fresh};
    return index ? &createOfParts(node, rows, operands, 3, along) : nullptr;
  }

  /// For nodes that preserve the axis.
  Value* partOfMoved(Node& node, const Cell& cell, unsigned along) {
    const std::optional<Movement> movement =
        node.results().size() == 1 ? movementOf(node.result()) : std::nullopt;
    if (!movement)
      return nullptr;
    const auto isAmong = [&](unsigned candidate) {
      return llvm::is_contained(*movement->axes, candidate);
    };
    unsigned before = along;
    if (movement->is(MovementKind::Permutation) && movement->axes) {
      before = (*movement->axes)[along];
    } else if (movement->is(MovementKind::InsertAxes) && movement->axes && !isAmong(along)) {
      before -= static_cast<unsigned>(
          llvm::count_if(*movement->axes, [&](unsigned inserted) { return inserted < along; }));
    } else if (movement->is(MovementKind::RemoveAxes) && movement->axes) {
      for (unsigned removed : *movement->axes)
        before += removed <= before ? 1 : 0;
    } else if (!movement->is(MovementKind::Same) && !movement->is(MovementKind::Convert)) {
      return nullptr;
    }
    Value* made = part(*movedOperand(node), cell, before);
    if (made && dropsAxis && keepsPlaces(node.operands()[0])) {
      Value& narrow = withoutAxis(*made, along);
      return &build.unsqueeze(rewriter.createLike(node, operandsMoving(node, narrow)).result(),
                              along);
    }
    return made ? &rewriter.createLike(node, operandsMoving(node, *made)).result() : nullptr;
  }

  /// The value without an axis, which has the extent 1.
  Value& withoutAxis(Value& value, unsigned dropped) {
    const Node* node = value.producer();
    const std::optional<Movement> movement = node ? movementOf(value) : std::nullopt;
    if (movement && movement->is(MovementKind::InsertAxes) && movement->axis() == dropped)
      return *movedOperand(*node);
    return build.node("Squeeze", {value, ints({static_cast<int64_t>(dropped)})}, {}, "part");
  }

  /// A node like `like`, whose `axis` attribute is `joined`, for parts. If the parts' readers drop
  /// the axis `along`, the node works without it, and the result gets it back.
  Value& createOfParts(const Node& like, unsigned joined, llvm::MutableArrayRef<Value*> operands,
                       unsigned partCount, unsigned along) {
    if (!dropsAxis)
      return rewriter.createLike(like, operands).result();
    for (Value*& operand : operands.take_front(partCount))
      operand = &withoutAxis(*operand, along);
    std::vector<NamedAttribute> attributes = cloneAttributes(like);
    llvm::erase_if(attributes, [](const NamedAttribute& each) { return each.name == "axis"; });
    attributes.push_back(
        {"axis", PlainAttribute("axis", joined > along ? joined - 1 : joined).attribute()});
    return build.unsqueeze(rewriter.create(like.op(), operands, std::move(attributes)).result(),
                           along);
  }

  /// The result of a Shape node, computed from the extents of the first part.
  Value& shapeOf(const Node& node) {
    Value& first = *part(*node.operand(0), cells.front(), axis);
    Value& extents =
        build.node("Shape", {dropsAxis ? withoutAxis(first, axis) : first}, {}, "part_shape");
    const auto rank = static_cast<int64_t>(first.type().rank());
    const int64_t behind = dropsAxis ? axis : axis + 1;
    const int64_t count = dropsAxis ? rank - 1 : rank;
    llvm::SmallVector<BuilderOperand, 3> pieces;
    if (axis > 0)
      pieces.emplace_back(build.slice(extents, 0, 0, axis));
    pieces.emplace_back(ints({cells.back().start + cells.back().count}));
    if (behind < count)
      pieces.emplace_back(build.slice(extents, 0, behind, count));
    Value& all = pieces.size() == 1 ? build.value(pieces.front())
                                    : build.node("Concat", pieces, attrs({{"axis", 0}}), "shape");
    const auto fromStart = [&](int64_t index) {
      return std::clamp<int64_t>(index < 0 ? index + rank : index, 0, rank);
    };
    const int64_t start = fromStart(node.intAttr("start", 0));
    const int64_t end = fromStart(node.intAttr("end", rank));
    return start == 0 && end == rank ? all : build.slice(all, 0, start, std::max(start, end));
  }

  /// Parts of the output. Each must continue the input at the same index.
  bool findPresents(llvm::ArrayRef<Value*> inputs, llvm::SmallVectorImpl<Value*>& presents) {
    for (size_t i = 0; i < cells.size(); ++i) {
      Value* present = part(*continued, cells[i], axis);
      if (!present || !continuesPart(*present, *inputs[i], cells[i], reads.parts))
        return false;
      presents.push_back(dropsAxis ? &withoutAxis(*present, axis) : present);
    }
    return true;
  }

  bool findRows(llvm::SmallVectorImpl<Rewriter::Replacement>& replacements) {
    for (const PartReader& reader : reads.parts) {
      Value* made = part(*movedOperand(*reader.result->producer()), reader.cell, axis);
      if (!made)
        return false;
      Value& narrow = reader.hasAxis ? *made : withoutAxis(*made, axis);
      replacements.push_back({reader.result, &narrow});
      if (!reader.hasAxis || !dropsAxis)
        continue;
      for (const Use& use : reader.result->uses()) {
        if (use.user().results().size() != 1)
          continue;
        Value& squeezed = use.user().result();
        const std::optional<Movement> movement = movementOf(squeezed);
        if (movement && movement->is(MovementKind::RemoveAxes) && movement->axis() == axis)
          replacements.push_back({&squeezed, &withoutAxis(*made, axis)});
      }
    }
    return true;
  }

  bool findExtents(llvm::SmallVectorImpl<Rewriter::Replacement>& replacements) {
    for (Node* shape : reads.shapes) {
      if (!part(*shape->operand(0), cells.front(), axis))
        return false;
      replacements.push_back({&shape->result(), &shapeOf(*shape)});
    }
    return true;
  }

  /// New rows may depend on the extents of earlier ones, so the extents are replaced first.
  bool replaceAll(llvm::ArrayRef<Rewriter::Replacement> rows,
                  llvm::ArrayRef<Rewriter::Replacement> extents) {
    if (rewriter.replace(extents))
      return false;
    if (!rewriter.replace(rows))
      return true;
    for (const auto& [before, after] : extents)
      rewriter.replace(*after, *before);
    return false;
  }

  void replaceOutput(llvm::ArrayRef<Value*> presents) {
    const std::string name = continued->name().str();
    const auto slot =
        static_cast<unsigned>(llvm::find(graph.outputs(), continued) - graph.outputs().begin());
    for (size_t i = 0; i < presents.size(); ++i) {
      Value* present = presents[i];
      if (!present->producer() || present->isGraphOutput())
        present = &build.node("Identity", {*present}, {}, "present");
      if (i == 0)
        graph.setOutput(slot, *present);
      else
        graph.addOutput(*present);
      graph.rename(*present, graph.freshName(name + "." + std::to_string(i)));
    }
  }

  /// Erases the input and the nodes that only it needed; records the edited nodes that remain.
  void eraseWhole() {
    surviving.insert(rewriter.touched().begin(), rewriter.touched().end());
    llvm::SmallVector<Node*, 16> dead = std::move(reads.nodes);
    dead.append(surviving.begin(), surviving.end());
    dead.append(rewriter.outdated().begin(), rewriter.outdated().end());
    if (Node* producer = continued->producer())
      dead.push_back(producer);
    eraseDeadChains(std::move(dead), [&](Node& node) {
      surviving.erase(&node);
      for (const Value& result : node.results())
        origins.forget(result);
    });
    assert(!input.hasUses() && "all readers read parts");
    origins.forget(input);
    graph.removeInput(input);
  }

  using Key = std::tuple<const Value*, int64_t, int64_t, unsigned>;
  static Key keyOf(const Value& value, const Cell& cell, unsigned along) {
    return {&value, cell.start, cell.count, along};
  }

  Graph& graph;
  Value& input;
  CacheOrigins& origins;
  Rewriter rewriter;
  AttentionBuilder build;
  Value* continued = nullptr; ///< output of the input
  CacheReads reads;
  unsigned axis = 0;
  llvm::SmallVector<Cell, 4> cells;
  bool dropsAxis = false;
  std::map<Key, Value*> parts;
  unsigned depth = 0;              ///< current depth of `part`
  llvm::DenseSet<Node*> surviving; ///< nodes that the cut created or whose operands it replaced
};

PartOfWhole wholeOf(const Value& input, const Value& output) {
  PartOfWhole whole;
  const unsigned rank = input.type().rank();
  whole.part.past = input.name().str();
  whole.part.present = output.name().str();
  whole.part.first.assign(rank, 0);
  whole.whole = manifestShape(input.type(), &output, rank);
  for (unsigned axis = 0; axis < rank; ++axis)
    whole.axes.push_back(axis);
  return whole;
}

/// Cuts the input, and its parts in turn, as far as they are read in parts. `keepsOperands`: no
/// operand of attention may be computed from several parts.
bool split(Graph& graph, Value& whole, CacheOrigins& origins, PassContext& context,
           bool keepsOperands) {
  llvm::SmallVector<std::pair<Value*, PartOfWhole>, 8> pending;
  pending.emplace_back(&whole, PartOfWhole());
  bool isChanged = false;
  while (!pending.empty()) {
    auto [input, place] = pending.pop_back_val();
    CacheCut cut(graph, *input, origins, context);
    const std::string name = input->name().str();
    if (!cut.plan() || (keepsOperands && !keepOperands(cut.readers())))
      continue;
    if (place.axes.empty())
      place = wholeOf(*input, cut.output());
    const llvm::SmallVector<Value*, 4> inputs = cut.run();
    if (inputs.empty())
      continue;
    isChanged = true;
    context.history.parts.erase(name);
    for (size_t i = 0; i < inputs.size(); ++i) {
      PartOfWhole inner = place;
      const unsigned axis = place.axes[cut.cutAxis()];
      inner.part.first[axis] += cut.cell(i).start;
      if (cut.hasDroppedAxis()) {
        inner.part.dropped.push_back(axis);
        llvm::sort(inner.part.dropped);
        inner.axes.erase(inner.axes.begin() + cut.cutAxis());
      }
      context.history.parts[inputs[i]->name().str()] = {inner.part, place.whole};
      pending.emplace_back(inputs[i], std::move(inner));
    }
    context.count(splitCachesName, "parts", static_cast<int64_t>(inputs.size()));
  }
  return isChanged;
}

} // namespace

llvm::Error cutCaches(Model& model, PassContext& context) {
  Graph& graph = model.graph();
  CacheOrigins origins(graph);
  llvm::SetVector<const Value*> moved;
  llvm::SetVector<const Value*> computed;
  for (Node& node : graph.nodes()) {
    if (node.op() != OpName("ai.kvopt::Sdpa"))
      continue;
    for (unsigned operand : {1U, 2U}) {
      if (const Value* input = cacheBehind(*node.operand(operand)))
        moved.insert(input);
      else
        addComputedFrom(*node.operand(operand), origins, computed);
    }
  }
  computed.set_subtract(moved);
  bool isChanged = false;
  for (const auto* inputs : {&moved, &computed})
    for (const Value* input : *inputs)
      if (!context.history.parts.count(input->name().str()))
        isChanged |= split(graph, *graph.findValue(input->name()), origins, context,
                           /*keepsOperands=*/inputs == &computed);
  if (!isChanged)
    return llvm::Error::success();
  graph.eraseDeadNodes();
  model.markEdited();
  return inferShapes(graph);
}

} // namespace kvopt::transforms
