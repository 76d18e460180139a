// Reductions over axes.
#include "ir/ops/dim_combination.h"
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

// Reduces a list over its only axis to a single element.
void reduceElements(ShapeContext& context, Combine combine, std::optional<int64_t> ofNothing) {
  std::optional<Integers> elements = context.integers(0);
  if (!elements || (elements->empty() && !ofNothing))
    return;
  Dim total = elements->empty() ? Dim::fixed(*ofNothing) : elements->front();
  for (size_t i = 1; i < elements->size(); ++i)
    total = combine(total, (*elements)[i]);
  context.setIntegers(0, Integers{heldBy(context.element(0), total)});
}

llvm::Error reduce(ShapeContext& context, Combine combine, std::optional<int64_t> ofNothing) {
  const TensorType& type = context.type(0);
  context.setResult(0, TensorType(context.element(0)));
  if (!type.hasRank())
    return llvm::Error::success();
  bool keep = context.node().intAttr("keepdims", 1) != 0;
  std::optional<llvm::SmallVector<int64_t, 8>> axes = llvm::SmallVector<int64_t, 8>();
  if (auto written = context.node().intsAttr("axes"))
    axes->assign(written->begin(), written->end());
  else if (context.has(1))
    axes = context.constantIntegers(1);
  if (!axes) {
    if (keep)
      context.setResult(0, TensorType(context.element(0), unknownShape(type.rank())));
    return llvm::Error::success();
  }
  if (axes->empty() && context.node().intAttr("noop_with_empty_axes", 0) != 0)
    return combine ? inferCopyOfFirst(context) : inferSameAsFirst(context);
  auto normalized = normalizedAxes(context, *axes, type.rank());
  if (!normalized)
    return normalized.takeError();
  llvm::SmallVector<bool, 8> reduced(type.rank(), normalized->empty());
  for (unsigned axis : *normalized)
    reduced[axis] = true;
  Shape shape;
  for (unsigned i = 0; i < type.rank(); ++i) {
    if (!reduced[i])
      shape.push_back(type.shape()[i]);
    else if (keep)
      shape.push_back(Dim::fixed(1));
  }
  context.setResult(0, TensorType(context.element(0), std::move(shape)));
  if (combine)
    reduceElements(context, combine, ofNothing);
  return llvm::Error::success();
}

llvm::Error inferMean(ShapeContext& context) { return reduce(context, nullptr, std::nullopt); }
llvm::Error inferSum(ShapeContext& context) { return reduce(context, sum, 0); }
llvm::Error inferProd(ShapeContext& context) { return reduce(context, product, 1); }
llvm::Error inferMax(ShapeContext& context) { return reduce(context, larger, std::nullopt); }
llvm::Error inferMin(ShapeContext& context) { return reduce(context, smaller, std::nullopt); }

void defineReduction(OpRegistry& registry, const char* name, int64_t axesOperandSince,
                     ShapeRule rule) {
  define(registry, name, 1)
      .in("data")
      .out("reduced")
      .attr("axes", AttributeKind::Ints)
      .attr("keepdims", int64_t{1})
      .shape(rule);
  define(registry, name, axesOperandSince)
      .in("data")
      .in("axes?")
      .out("reduced")
      .attr("keepdims", int64_t{1})
      .attr("noop_with_empty_axes", int64_t{0})
      .shape(rule);
}

} // namespace

void register_reduction(OpRegistry& registry) {
  defineReduction(registry, "ReduceSum", 13, inferSum);
  defineReduction(registry, "ReduceMean", 18, inferMean);
  defineReduction(registry, "ReduceMax", 18, inferMax);
  defineReduction(registry, "ReduceMin", 18, inferMin);
  defineReduction(registry, "ReduceProd", 18, inferProd);
  for (const char* name : {"ReduceSumSquare", "ReduceL1", "ReduceL2"})
    defineReduction(registry, name, 18, inferMean);
}

} // namespace kvopt::ir
