// ai.kvopt::QuantizeRows: quantizes rows to int8 codes with one scale each, with the rounding of
// ai.kvopt::InPlaceQuantizedKvSdpa (cache_operators.cc). Rows are along the last axis; scales are
// float, with the same extents and one column.
#include "ir/ops/kvopt/own_body.h"
#include "ir/shapes/shape_rules.h"
#include "support/format.h"

namespace kvopt::ir {
namespace {

llvm::Error inferQuantizeRows(ShapeContext& context) {
  const TensorType& rows = context.type(0);
  if (const ElementType element = rows.elementType();
      element != ElementType::Undefined && !isFloatingPoint(element))
    return context.error(formatted("rows of {} cannot be rounded", dtypeName(element)));
  if (!rows.hasRank()) {
    context.setResult(0, TensorType(ElementType::Int8));
    context.setResult(1, TensorType(ElementType::Float));
    return llvm::Error::success();
  }
  if (rows.rank() == 0)
    return context.error("a scalar has no rows");
  Shape scales(rows.shape().begin(), rows.shape().end());
  context.setResult(0, TensorType(ElementType::Int8, scales));
  scales.back() = Dim::fixed(1);
  context.setResult(1, TensorType(ElementType::Float, std::move(scales)));
  return llvm::Error::success();
}

} // namespace

void register_quantize_rows(OpRegistry& registry) {
  define(registry, OpName(kvoptDomain, "QuantizeRows"), 1)
      .in("rows")
      .out("codes")
      .out("scales")
      .shape(inferQuantizeRows)
      .body(checkOwnBody);
}

} // namespace kvopt::ir
