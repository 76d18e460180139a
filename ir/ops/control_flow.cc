// If, Loop and Scan. Their results have the types on which all branches or iterations agree. A
// branch that a known condition rules out is ignored.
#include "ir/shapes/shape_rules.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {
namespace {

TensorType commonType(const TensorType& a, const TensorType& b) {
  TensorType common(a.elementType() == b.elementType() ? a.elementType() : ElementType::Undefined);
  if (!a.hasRank() || !b.hasRank() || a.rank() != b.rank())
    return common;
  Shape shape;
  for (unsigned i = 0; i < a.rank(); ++i)
    shape.push_back(a.shape()[i].isKnownEqual(b.shape()[i]) ? a.shape()[i] : Dim::unknown());
  common.setShape(std::move(shape));
  return common;
}

std::optional<Integers> commonIntegers(std::optional<Integers> a,
                                       const std::optional<Integers>& b) {
  if (!a || !b || a->size() != b->size())
    return std::nullopt;
  for (size_t i = 0; i < a->size(); ++i)
    if (!(*a)[i].isKnownEqual((*b)[i]))
      (*a)[i] = Dim::unknown();
  return a;
}

const Graph* subgraph(ShapeContext& context, llvm::StringRef name) {
  const Attribute* attribute = context.node().attribute(name);
  return attribute && attribute->graphs().size() == 1 ? attribute->graphs().front().get() : nullptr;
}

llvm::Error inferIf(ShapeContext& context) {
  const Graph* thenGraph = subgraph(context, "then_branch");
  const Graph* elseGraph = subgraph(context, "else_branch");
  if (!thenGraph || !elseGraph)
    return context.error("a branch is missing");
  if (thenGraph->outputs().size() < context.resultCount() ||
      elseGraph->outputs().size() < context.resultCount())
    return context.error("a branch has fewer outputs than the node has results");
  if (const auto condition = context.constantIntegers(0); condition && condition->size() == 1)
    thenGraph = elseGraph = condition->front() != 0 ? thenGraph : elseGraph;
  for (unsigned i = 0; i < context.resultCount(); ++i) {
    const Value& thenValue = *thenGraph->outputs()[i];
    const Value& elseValue = *elseGraph->outputs()[i];
    context.setResult(i, commonType(thenValue.type(), elseValue.type()));
    context.setIntegers(i, commonIntegers(thenValue.knownIntegers(), elseValue.knownIntegers()));
  }
  return llvm::Error::success();
}

bool hasSymbolOf(const Dim& extent, const Graph& body) {
  for (const std::string& symbol : extent.symbols())
    for (const std::unique_ptr<Value>& input : body.inputs())
      if (input->type().hasRank())
        for (const Dim& declared : input->type().shape())
          if (llvm::is_contained(declared.symbols(), symbol))
            return true;
  return false;
}

// Extent of a carried value after any number of iterations. A symbol of the body's inputs may be a
// different extent in each iteration, independently of its meaning outside.
Dim carriedExtent(const Dim& initial, const Dim& before, const Dim& after, const Graph& body) {
  if (before.isKnownEqual(after))
    return initial;
  return initial.isKnownEqual(after) && !hasSymbolOf(after, body) ? initial : Dim::unknown();
}

TensorType carriedType(const TensorType& initial, const TensorType& before, const TensorType& after,
                       const Graph& body) {
  TensorType carried = commonType(initial, after);
  if (!carried.hasRank())
    return carried;
  Shape shape;
  for (unsigned i = 0; i < carried.rank(); ++i)
    shape.push_back(carriedExtent(
        initial.dim(i),
        before.hasRank() && before.rank() == carried.rank() ? before.dim(i) : Dim::unknown(),
        after.dim(i), body));
  carried.setShape(std::move(shape));
  return carried;
}

// Translates extents in a body to extents outside. A symbol that the body declares for its
// parameters is the extent that they receive, if it is the same for all of them and in each
// iteration. A symbol of a captured value keeps its outer meaning. Other symbols are unknown.
class OuterExtents {
public:
  explicit OuterExtents(const Node& loop) {
    for (const Value* captured : capturedValues(loop))
      if (captured->type().hasRank())
        for (const Dim& extent : captured->type().shape())
          for (const std::string& symbol : extent.symbols())
            extents.try_emplace(symbol, Dim::symbol(symbol));
  }

  /// Binds a parameter that receives a value with these extents in each iteration.
  void bind(const TensorType& parameter, const std::optional<Shape>& given) {
    if (!given || !parameter.hasRank() || parameter.rank() != given->size())
      return;
    for (size_t axis = 0; axis < given->size(); ++axis)
      bind(parameter.shape()[axis], (*given)[axis]);
  }

  /// Binds a carried value. An extent that an iteration changes differs from its first value.
  void bindCarried(const TensorType& parameter, const TensorType& initial,
                   const TensorType& after) {
    if (!parameter.hasRank() || !initial.hasRank() || !after.hasRank() ||
        parameter.rank() != initial.rank() || parameter.rank() != after.rank())
      return;
    for (unsigned axis = 0; axis < parameter.rank(); ++axis) {
      const Dim& before = parameter.shape()[axis];
      if (before.isKnownEqual(after.shape()[axis]))
        bind(before, initial.shape()[axis]);
      else if (!after.shape()[axis].isUnknown())
        forget(before);
    }
  }

  Dim outside(const Dim& extent) const {
    return extent.substitute([&](llvm::StringRef symbol) {
      const auto found = extents.find(symbol);
      return std::optional(found == extents.end() ? Dim::unknown() : found->second);
    });
  }

private:
  void bind(const Dim& declared, const Dim& given) {
    const auto symbols = declared.symbols();
    if (given.isUnknown() || symbols.size() != 1 || declared != Dim::symbol(symbols.front()))
      return;
    const auto [entry, isNew] = extents.try_emplace(symbols.front(), given);
    if (!isNew && !entry->second.isKnownEqual(given))
      entry->second = Dim::unknown();
  }
  void forget(const Dim& declared) {
    for (const std::string& symbol : declared.symbols())
      extents[symbol] = Dim::unknown();
  }

  llvm::StringMap<Dim> extents;
};

// Type with an axis for the iterations before the axes of each result. Without iterations, the
// result is empty, whatever its other extents are.
TensorType stackedType(const TensorType& each, const OuterExtents& extents) {
  TensorType stacked(each.elementType());
  if (!each.hasRank())
    return stacked;
  Shape shape = unknownShape(1);
  for (const Dim& extent : each.shape())
    shape.push_back(extents.outside(extent));
  stacked.setShape(std::move(shape));
  return stacked;
}

// Body: (iteration, condition, carried…) → (condition, carried…, scanned…).
llvm::Error inferLoop(ShapeContext& context) {
  const Graph* body = subgraph(context, "body");
  if (!body)
    return context.error("the body is missing");
  if (body->outputs().size() < context.resultCount() + size_t{1})
    return context.error("the body has fewer outputs than the node has results");
  size_t operands = context.node().operands().size();
  size_t carried = operands > 2 ? operands - 2 : 0;
  if (body->inputs().size() < carried + 2)
    return context.error("the body has fewer inputs than the node has operands");
  OuterExtents extents(context.node());
  for (unsigned i = 0; i < carried && i + 1 < body->outputs().size(); ++i)
    extents.bindCarried(body->inputs()[i + 2]->type(), context.type(i + 2),
                        body->outputs()[i + 1]->type());
  for (unsigned i = 0; i < context.resultCount(); ++i) {
    const TensorType& after = body->outputs()[i + 1]->type();
    context.setResult(i, i < carried ? carriedType(context.type(i + 2),
                                                   body->inputs()[i + 2]->type(), after, *body)
                                     : stackedType(after, extents));
  }
  return llvm::Error::success();
}

// Body: (carried…, row of each scanned operand…) → (carried…, scanned…), with one iteration per
// row.
llvm::Error inferScan(ShapeContext& context) {
  const Graph* body = subgraph(context, "body");
  if (!body)
    return context.error("the body is missing");
  const auto operands = static_cast<int64_t>(context.node().operands().size());
  const int64_t scans = context.node().intAttr("num_scan_inputs", 0);
  if (scans < 1 || scans > operands)
    return context.error("the number of scanned operands is wrong");
  if (body->outputs().size() < context.resultCount() ||
      static_cast<int64_t>(body->inputs().size()) < operands ||
      static_cast<int64_t>(body->outputs().size()) < operands - scans)
    return context.error("the body does not fit the node");
  const auto carried = static_cast<unsigned>(operands - scans);
  const auto inputAxes = context.node().intsAttr("scan_input_axes");
  const auto outputAxes = context.node().intsAttr("scan_output_axes");
  const int64_t firstAxis = inputAxes && !inputAxes->empty() ? inputAxes->front() : 0;
  const Dim length = context.type(carried).dim(firstAxis);
  OuterExtents extents(context.node());
  for (unsigned i = 0; i < carried; ++i)
    extents.bindCarried(body->inputs()[i]->type(), context.type(i), body->outputs()[i]->type());
  for (unsigned i = 0; i < scans; ++i)
    extents.bind(body->inputs()[carried + i]->type(),
                 scannedRow(context.node(), i, context.type(carried + i)));
  for (unsigned i = 0; i < context.resultCount(); ++i) {
    const TensorType& after = body->outputs()[i]->type();
    if (i < carried) {
      context.setResult(i, carriedType(context.type(i), body->inputs()[i]->type(), after, *body));
      continue;
    }
    TensorType stacked = stackedType(after, extents);
    if (stacked.hasRank()) {
      Shape shape(stacked.shape().begin() + 1, stacked.shape().end());
      const size_t result = i - carried;
      const auto axis = normalizedAxis(
          outputAxes && result < outputAxes->size() ? (*outputAxes)[result] : 0, stacked.rank());
      if (!axis)
        return context.error("an output's axis is out of range");
      shape.insert(shape.begin() + *axis, length);
      stacked.setShape(std::move(shape));
    }
    context.setResult(i, std::move(stacked));
  }
  return llvm::Error::success();
}

} // namespace

void register_control_flow(OpRegistry& registry) {
  define(registry, "If", 1)
      .in("cond")
      .out("outputs+")
      .requiredAttr("then_branch", AttributeKind::Graph)
      .requiredAttr("else_branch", AttributeKind::Graph)
      .shape(inferIf);
  define(registry, "Loop", 1)
      .in("M?")
      .in("cond?")
      .in("v_initial*")
      .out("v_final_and_scan_outputs+")
      .requiredAttr("body", AttributeKind::Graph)
      .shape(inferLoop);
  define(registry, "Scan", 9)
      .in("initial_state_and_scan_inputs+")
      .out("final_state_and_scan_outputs+")
      .requiredAttr("body", AttributeKind::Graph)
      .requiredAttr("num_scan_inputs", AttributeKind::Int)
      .attr("scan_input_axes", AttributeKind::Ints)
      .attr("scan_input_directions", AttributeKind::Ints)
      .attr("scan_output_axes", AttributeKind::Ints)
      .attr("scan_output_directions", AttributeKind::Ints)
      .shape(inferScan);
}

} // namespace kvopt::ir
