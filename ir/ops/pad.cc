// Pad.
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

llvm::Error inferPad(ShapeContext& context) {
  const TensorType& type = context.type(0);
  if (!type.hasRank()) {
    context.setResult(0, TensorType(context.element(0)));
    return llvm::Error::success();
  }
  std::optional<Integers> pads = context.integers(1);
  if (auto written = context.node().intsAttr("pads")) {
    pads.emplace();
    for (int64_t pad : *written)
      pads->push_back(Dim::fixed(pad));
  }
  llvm::SmallVector<int64_t, 8> axes;
  for (unsigned i = 0; i < type.rank(); ++i)
    axes.push_back(i);
  bool axesKnown = true;
  if (context.has(3)) {
    auto given = context.constantIntegers(3);
    axesKnown = given.has_value();
    if (given)
      axes = *given;
  }
  if (!pads || !axesKnown) {
    context.setResult(0, TensorType(context.element(0), unknownShape(type.rank())));
    return llvm::Error::success();
  }
  auto normalized = normalizedAxes(context, axes, type.rank());
  if (!normalized)
    return normalized.takeError();
  if (pads->size() != 2 * axes.size())
    return context.error(formatted("{} pads for {} axes", pads->size(), axes.size()));
  Shape shape = shapeOf(type);
  for (size_t i = 0; i < axes.size(); ++i) {
    Dim extent = shape[(*normalized)[i]] + (*pads)[i] + (*pads)[axes.size() + i];
    shape[(*normalized)[i]] = extent.isKnownNonNegative() ? extent : Dim::unknown();
  }
  context.setResult(0, TensorType(context.element(0), std::move(shape)));
  return llvm::Error::success();
}

} // namespace

void register_pad(OpRegistry& registry) {
  define(registry, "Pad", 2)
      .in("data")
      .out("output")
      .attr("mode", "constant")
      .requiredAttr("pads", AttributeKind::Ints)
      .attr("value", 0.0f)
      .shape(inferPad);
  define(registry, "Pad", 11)
      .in("data")
      .in("pads")
      .in("constant_value?")
      .out("output")
      .attr("mode", "constant")
      .shape(inferPad);
  define(registry, "Pad", 18)
      .in("data")
      .in("pads")
      .in("constant_value?")
      .in("axes?")
      .out("output")
      .attr("mode", "constant")
      .shape(inferPad);
}

} // namespace kvopt::ir
