// If, Loop and Scan: results are what all ways of getting there agree on.
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

// The extent that a carried value has after every number of iterations. A symbol of the body's
// inputs stands for another extent in each of them, whatever it means outside.
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

// One axis for the iterations before those of each of them. Only constants hold when there was no
// iteration, too.
TensorType stackedType(const TensorType& each) {
  TensorType stacked(each.elementType());
  if (!each.hasRank())
    return stacked;
  Shape shape = unknownShape(1);
  for (const Dim& extent : each.shape())
    shape.push_back(extent.value() ? extent : Dim::unknown());
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
  for (unsigned i = 0; i < context.resultCount(); ++i) {
    const TensorType& after = body->outputs()[i + 1]->type();
    context.setResult(i, i < carried ? carriedType(context.type(i + 2),
                                                   body->inputs()[i + 2]->type(), after, *body)
                                     : stackedType(after));
  }
  return llvm::Error::success();
}

// Body: (carried…, row of each scanned operand…) → (carried…, scanned…), with an iteration for each
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
      static_cast<int64_t>(body->inputs().size()) < operands)
    return context.error("the body does not fit the node");
  const auto carried = static_cast<unsigned>(operands - scans);
  const auto inputAxes = context.node().intsAttr("scan_input_axes");
  const auto outputAxes = context.node().intsAttr("scan_output_axes");
  const int64_t firstAxis = inputAxes && !inputAxes->empty() ? inputAxes->front() : 0;
  const Dim length = context.type(carried).dim(firstAxis);
  for (unsigned i = 0; i < context.resultCount(); ++i) {
    const TensorType& after = body->outputs()[i]->type();
    if (i < carried) {
      context.setResult(i, carriedType(context.type(i), body->inputs()[i]->type(), after, *body));
      continue;
    }
    TensorType stacked = stackedType(after);
    if (stacked.hasRank()) {
      Shape shape(stacked.shape().begin() + 1, stacked.shape().end());
      const size_t result = i - carried;
      const auto axis = normalizedAxis(
          outputAxes && result < outputAxes->size() ? (*outputAxes)[result] : 0, stacked.rank());
      if (!axis)
        return context.error("an output's axis lies outside");
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
