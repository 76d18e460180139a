// ai.kvopt::QuantizedSdpa: attention over caches of codes that another attention appends to.
//
// key and value are [B,G,C,·], key_scale and value_scale float [B,G,C,1], as written by
// ai.kvopt::InPlaceQuantizedKvSdpa (cache_operators.cc). The element type of key and value
// identifies the codes, and `v_width` is the number of values in a row. Batch row b has
// past_length[b] + S keys, and query row i is at position past_length[b] + i; later rows are never
// read. Attention is that of ai.kvopt::Sdpa over the rows that codes and scales represent.
#include "ir/ops/kvopt/attention_shapes.h"
#include "ir/ops/kvopt/own_body.h"

#include "support/format.h"

namespace kvopt::ir {
namespace {

enum Operand : unsigned { Query, Key, KeyScale, Values, ValueScale, PastLength, Mask };

/// Fails unless the operands are rows of codes of `width` numbers, with a scale for each row.
llvm::Error checkCodes(const ShapeContext& context, unsigned codes, unsigned scale,
                       const Dim& width) {
  const ElementType element = context.element(codes);
  const RowCode* code = rowCodeOf(element);
  if (element != ElementType::Undefined && !code)
    return context.error(formatted("rows of {} are not codes", dtypeName(element)));
  for (unsigned operand : {codes, scale})
    if (llvm::Error error = requireRank(context, operand, 4))
      return error;
  const ElementType scales = context.element(scale);
  if (scales != ElementType::Undefined && scales != ElementType::Float)
    return context.error(formatted("scales are {}, not float32", dtypeName(scales)));
  const Dim elements = !code || !code->isPacked() ? width
                       : width.value()            ? Dim::fixed(code->elementsOf(*width.value()))
                                                  : Dim::unknown();
  if (llvm::Error error =
          requireEqual(context, context.type(codes).dim(3), elements, "bytes of a row of codes"))
    return error;
  for (int64_t axis = 0; axis < 3; ++axis)
    if (llvm::Error error = requireEqual(context, context.type(codes).dim(axis),
                                         context.type(scale).dim(axis), "codes and scales"))
      return error;
  return requireEqual(context, context.type(scale).dim(3), Dim::fixed(1), "columns of scales");
}

llvm::Error inferQuantizedSdpa(ShapeContext& context) {
  if (llvm::Error error = requireRank(context, Query, 4))
    return error;
  const TensorType& query = context.type(Query);
  const int64_t width = context.node().intAttr("v_width", 0);
  if (width < 1)
    return context.error(formatted("values of {} columns", width));
  if (llvm::Error error = checkCodes(context, Key, KeyScale, query.dim(3)))
    return error;
  if (llvm::Error error = checkCodes(context, Values, ValueScale, Dim::fixed(width)))
    return error;
  constexpr const char* what[] = {"batch sizes", "head counts", "rows"};
  for (int64_t axis = 0; axis < 3; ++axis)
    if (llvm::Error error = requireEqual(context, context.type(Key).dim(axis),
                                         context.type(Values).dim(axis), what[axis]))
      return error;
  if (llvm::Error error =
          requireEqual(context, query.dim(0), context.type(Key).dim(0), "batch sizes"))
    return error;
  if (llvm::Error error = checkHeads(context, query.dim(1), context.type(Key).dim(1)))
    return error;
  if (llvm::Error error = checkPastLength(context, PastLength, query.dim(0)))
    return error;
  if (llvm::Error error = checkMaskAndSinks(context, Mask))
    return error;
  context.setResult(0, TensorType(context.element(Query), Shape{query.dim(0), query.dim(1),
                                                                query.dim(2), Dim::fixed(width)}));
  return llvm::Error::success();
}

} // namespace

void register_quantized_sdpa(OpRegistry& registry) {
  OpDefBuilder definition = define(registry, OpName(kvoptDomain, "QuantizedSdpa"), 1);
  addAttentionAttributes(definition);
  definition.in("query")
      .in("key")
      .in("key_scale")
      .in("value")
      .in("value_scale")
      .in("past_length")
      .in("mask?")
      .in("sinks?")
      .out("output")
      .requiredAttr("v_width", AttributeKind::Int)
      .shape(inferQuantizedSdpa)
      .body(checkOwnBody);
}

} // namespace kvopt::ir
