// Consistency checks of attention operands, and the type of the result.
#include "ir/ops/kvopt/attention_shapes.h"

#include "ir/cache_layout.h"

namespace kvopt::ir {
namespace {

struct ExtentPair {
  unsigned operandA, operandB;
  int64_t axis;
  const char* what;
};

constexpr ExtentPair equalExtents[] = {
    {0, 1, 0, "batch sizes of query and key"},   {1, 2, 0, "batch sizes of key and value"},
    {0, 2, 0, "batch sizes of query and value"}, {0, 1, 3, "head widths of query and key"},
    {1, 2, 1, "head counts of key and value"},   {1, 2, 2, "lengths of key and value"},
};

} // namespace

llvm::Error checkAttentionOperands(const ShapeContext& context) {
  for (unsigned operand : {0u, 1u, 2u})
    if (llvm::Error error = requireRank(context, operand, 4))
      return error;
  for (const ExtentPair& pair : equalExtents)
    if (llvm::Error error = requireEqual(context, context.type(pair.operandA).dim(pair.axis),
                                         context.type(pair.operandB).dim(pair.axis), pair.what))
      return error;
  return checkHeads(context, context.type(0).dim(1), context.type(1).dim(1));
}

llvm::Error checkLatentOperands(const ShapeContext& context) {
  for (unsigned operand : {0u, 1u})
    if (llvm::Error error = requireRank(context, operand, 4))
      return error;
  constexpr std::pair<int64_t, const char*> equal[] = {
      {0, "batch sizes"}, {2, "new rows"}, {3, "head widths"}};
  const TensorType& query = context.type(0);
  const TensorType& added = context.type(1);
  for (const auto& [axis, what] : equal)
    if (llvm::Error error = requireEqual(context, query.dim(axis), added.dim(axis), what))
      return error;
  return checkHeads(context, query.dim(1), added.dim(1));
}

llvm::Expected<TensorType> latentResultType(const ShapeContext& context) {
  const TensorType& query = context.type(0);
  const TensorType& added = context.type(1);
  const int64_t offset = context.node().intAttr("v_offset", 0);
  const int64_t width = context.node().intAttr("v_width", 0);
  int64_t end = 0;
  if (offset < 0 || width < 1 || __builtin_add_overflow(offset, width, &end) ||
      added.dim(3).isKnownLess(Dim::fixed(end)))
    return context.error(formatted("values in {} columns from {} on are not in rows of {}", width,
                                   offset, added.dim(3).str()));
  return TensorType(context.element(0), Shape{mergedExtent(query.dim(0), added.dim(0)),
                                              query.dim(1), query.dim(2), Dim::fixed(width)});
}

llvm::Error checkMaskAndSinks(const ShapeContext& context, unsigned mask) {
  if (llvm::Error error = checkMask(context, mask, Dim::unknown()))
    return error;
  if (llvm::Error error = checkMaskElements(context, mask))
    return error;
  return checkSinks(context, mask + 1);
}

llvm::Error checkNewScales(const ShapeContext& context, unsigned codes, unsigned scales) {
  const TensorType& type = context.type(scales);
  if (context.element(codes) != ElementType::Undefined &&
      context.element(codes) != ElementType::Int8)
    return context.error(
        formatted("new rows are {}, they should be int8 codes", context.type(codes).str()));
  if (type.elementType() != ElementType::Undefined && type.elementType() != ElementType::Float)
    return context.error(formatted("scales are {}, they should be float", type.str()));
  if (!type.hasRank())
    return llvm::Error::success();
  if (llvm::Error error = requireRank(context, scales, 4))
    return error;
  for (unsigned axis = 0; axis < 4; ++axis)
    if (llvm::Error error = requireEqual(context, type.dim(axis),
                                         axis == 3 ? Dim::fixed(1) : context.type(codes).dim(axis),
                                         "extents of new rows and their scales"))
      return error;
  return llvm::Error::success();
}

void addAttentionAttributes(OpDefBuilder& definition) {
  definition.requiredAttr("scale", AttributeKind::Float)
      .attr("causal", int64_t{0})
      .attr("window", int64_t{0})
      .attr("softcap", 0.0f)
      .attr("mask_boolean", int64_t{0});
}

llvm::Error checkHeads(const ShapeContext& context, const Dim& heads, const Dim& groups) {
  std::optional<int64_t> h = heads.value();
  std::optional<int64_t> g = groups.value();
  if (h && g && (*g == 0 ? *h != 0 : *h % *g != 0))
    return context.error(formatted("{} query heads do not divide into {} groups", *h, *g));
  return llvm::Error::success();
}

namespace {

/// Width of cached rows for new rows with `columns` columns.
Dim cachedWidth(const Dim& columns, const RowCode* code) {
  if (!code || !code->isPacked())
    return columns;
  const std::optional<int64_t> count = columns.value();
  return count ? Dim::fixed(code->elementsOf(*count)) : Dim::unknown();
}

} // namespace

llvm::Expected<Dim> checkCache(const ShapeContext& context, const CacheSide& side) {
  const TensorType& added = context.type(side.added);
  const TensorType& past = context.type(side.past);
  int64_t sequenceAxis = context.node().intAttr(side.axisName, 2);
  if (sequenceAxis < 0 || sequenceAxis > 3)
    return context.error(formatted("{} is {}, it should be 0 to 3", side.axisName, sequenceAxis));
  if (!past.hasRank())
    return Dim::unknown();
  const auto layout = CacheLayout::bySequenceAxis(past.rank(), sequenceAxis);
  if (!layout)
    return context.error(
        formatted("a cache {} has no sequence on axis {}", past.str(), sequenceAxis));
  const Dim& rows = past.shape()[layout->batchAxis()];
  if (llvm::Error error =
          layout->hasFoldedHeads()
              ? requireEqual(context, added.dim(0) * added.dim(1), rows,
                             "heads of all batch rows of cache and new rows")
              : requireEqual(context, added.dim(0), rows, "batch sizes of cache and new rows"))
    return error;
  if (!layout->hasFoldedHeads())
    if (llvm::Error error = requireEqual(context, added.dim(1), past.shape()[layout->headAxis()],
                                         "head counts of cache and new rows"))
      return error;
  if (llvm::Error error =
          requireEqual(context, cachedWidth(added.dim(3), side.code),
                       past.shape()[layout->columnAxis()], "widths of cache and new rows"))
    return error;
  if (side.code && side.code->isPacked() && layout->isTransposed())
    return context.error(formatted("{} must have their columns side by side", side.code->rows));
  const ElementType wanted = side.code ? side.code->element : added.elementType();
  if (past.elementType() != ElementType::Undefined && wanted != ElementType::Undefined &&
      past.elementType() != wanted)
    return context.error(
        side.code ? formatted("the cache is {}, it should be {}", past.str(), onnxName(wanted))
                  : formatted("the cache is {}, its new rows are {}", past.str(), added.str()));
  const Dim& capacity = past.shape()[layout->sequenceAxis()];
  if (!side.isRing && capacity.isKnownLess(added.dim(2)))
    return context.error(
        formatted("{} new rows do not fit a capacity of {}", added.dim(2).str(), capacity.str()));
  return capacity;
}

llvm::Error checkCacheScales(const ShapeContext& context, const CacheSide& side, unsigned scales) {
  const TensorType& past = context.type(side.past);
  const TensorType& type = context.type(scales);
  auto differs = [&] {
    return context.error(
        formatted("scales {} do not fit the cache {}: one float a row", type.str(), past.str()));
  };
  if (type.elementType() != ElementType::Undefined && type.elementType() != ElementType::Float)
    return differs();
  if (!past.hasRank() || !type.hasRank())
    return llvm::Error::success();
  const auto layout =
      CacheLayout::bySequenceAxis(past.rank(), context.node().intAttr(side.axisName, 2));
  assert(layout && "checkCache ensures it");
  if (type.rank() != past.rank())
    return differs();
  for (unsigned axis = 0; axis < past.rank(); ++axis)
    if (type.shape()[axis].isKnownDifferent(axis == layout->columnAxis() ? Dim::fixed(1)
                                                                         : past.shape()[axis]))
      return differs();
  return llvm::Error::success();
}

llvm::Error checkMaskElements(const ShapeContext& context, unsigned operand) {
  ElementType element = context.element(operand);
  if (element == ElementType::Undefined)
    return llvm::Error::success();
  bool isBoolean = context.node().intAttr("mask_boolean", 0) != 0;
  if (isBoolean == (element == ElementType::Bool))
    return llvm::Error::success();
  return context.error(formatted("the mask is {}, mask_boolean is {}", context.type(operand).str(),
                                 isBoolean ? 1 : 0));
}

TensorType attentionResultType(const ShapeContext& context) {
  const TensorType& query = context.type(0);
  const TensorType& key = context.type(1);
  const TensorType& value = context.type(2);
  Dim batch = mergedExtent(mergedExtent(query.dim(0), key.dim(0)), value.dim(0));
  return TensorType(context.element(0), Shape{batch, query.dim(1), query.dim(2), value.dim(3)});
}

llvm::Error checkMask(const ShapeContext& context, unsigned operand, const Dim& tokens) {
  const TensorType& mask = context.type(operand);
  if (!mask.hasRank())
    return llvm::Error::success();
  const TensorType& query = context.type(0);
  const Shape scores{query.dim(0), query.dim(1), query.dim(2), tokens};
  if (mask.rank() > 4)
    return context.error(formatted("the mask {} has more than four axes", mask.str()));
  for (unsigned i = 0; i < mask.rank(); ++i) {
    const Dim& extent = mask.shape()[mask.rank() - 1 - i];
    const Dim& wanted = scores[3 - i];
    if (extent.isKnownDifferent(Dim::fixed(1)) && extent.isKnownDifferent(wanted))
      return context.error(formatted("the mask {} does not broadcast to {}", mask.str(),
                                     TensorType(context.element(0), scores).str()));
  }
  return llvm::Error::success();
}

llvm::Error checkSinks(const ShapeContext& context, unsigned operand) {
  if (llvm::Error error = requireRank(context, operand, 1))
    return error;
  return requireEqual(context, context.type(operand).dim(0), context.type(0).dim(1),
                      "sinks and query heads");
}

llvm::Error checkPastLength(const ShapeContext& context, unsigned operand, const Dim& batch) {
  if (llvm::Error error = requireRank(context, operand, 1))
    return error;
  if (context.element(operand) != ElementType::Undefined &&
      context.element(operand) != ElementType::Int64)
    return context.error(
        formatted("past_length is {}, it should be int64", context.type(operand).str()));
  Dim rows = context.type(operand).dim(0);
  if (rows.isKnownDifferent(Dim::fixed(1)) && rows.isKnownDifferent(batch))
    return context.error(
        formatted("past_length has {} elements, not 1 or one a batch row", rows.str()));
  return llvm::Error::success();
}

} // namespace kvopt::ir
