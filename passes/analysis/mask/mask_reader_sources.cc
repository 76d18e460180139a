// Reading of masks: operators that generate elements from their position.
#include "passes/analysis/mask/mask_reader.h"

namespace kvopt::analysis {
using namespace ir;

using Kind = MaskExpression::Kind;

ExprRef MaskReader::generated(const Place& place) {
  llvm::StringRef op = place.node->op().type();
  const Value* data = place.node->operand(0);
  if ((op == "Pad" || op == "ScatterND") && data && data->type().hasRank())
    return op == "Pad" ? pad(place) : scatterND(place);
  if (op == "Range")
    return range(place);
  if (op == "Trilu")
    return triangle(place);
  if (op == "CumSum")
    return cumulative(place);
  if (op == "ConstantOfShape") {
    const Attribute* value = place.node->attribute("value");
    bool isBoolean = place.value.type().elementType() == ElementType::Bool;
    if (!value)
      return made.number(0);
    if (value->kind() != AttributeKind::Tensor)
      return nullptr;
    auto number = scalarValue(*value->tensorValue());
    if (!number)
      return nullptr;
    return isBoolean ? made.boolean(*number != 0) : made.number(*number);
  }
  if (op == "Shape" && place.index.size() == 1) {
    auto position = place.index[0]->constant();
    if (!data || !data->type().hasRank() || !position)
      return nullptr;
    auto first = normalizedAxis(place.node->intAttr("start", 0), data->type().rank());
    if (!first)
      return nullptr;
    Dim extent = data->type().dim(static_cast<int64_t>(*first + *position));
    extent = modelDim(extent);
    return extent.isUnknown() ? nullptr : made.integer(extent);
  }
  return nullptr;
}

ExprRef MaskReader::range(const Place& place) {
  ElementType type = place.value.type().elementType();
  if (place.node->operands().size() != 3 || !holdsIndices(type))
    return nullptr;
  ExprRef start = readAt(place.node->operand(0), {});
  ExprRef step = readAt(place.node->operand(2), {});
  return made.add(start, made.multiply(place.index[0], step, type), type);
}

ExprRef MaskReader::triangle(const Place& place) {
  if (place.index.size() < 2)
    return nullptr;
  ExprRef row = place.index[place.index.size() - 2];
  ExprRef column = place.index.back();
  ExprRef diagonal = place.node->operand(1) ? readAt(place.node->operand(1), {}) : made.number(0);
  if (const Value* k = place.node->operand(1); k && k->type().hasRank() && k->type().rank() == 1)
    diagonal = readAt(k, {made.number(0)});
  if (!row->is(Kind::Integer) || !column->is(Kind::Integer) || !diagonal->is(Kind::Integer))
    return nullptr;
  Dim above = column->dim - row->dim - diagonal->dim;
  bool isUpper = place.node->intAttr("upper", 1) != 0;
  ExprRef isKept = made.atLeastZero(isUpper ? above : -above);
  bool isBoolean = place.value.type().elementType() == ElementType::Bool;
  ExprRef zero = isBoolean ? made.boolean(false) : made.number(0);
  return made.select(isKept, readAt(place.node->operand(0), place.index), zero);
}

/// A running sum of what is the same everywhere along the axis.
ExprRef MaskReader::cumulative(const Place& place) {
  ElementType type = place.value.type().elementType();
  auto axis = integerAt(place.node->operand(1), 0);
  if (!axis || !axis->value() || place.node->intAttr("exclusive", 0) != 0 ||
      place.node->intAttr("reverse", 0) != 0 || !holdsIndices(type))
    return nullptr;
  auto normal = normalizedAxis(*axis->value(), static_cast<unsigned>(place.index.size()));
  if (!normal)
    return nullptr;
  ExprVector index(place.index.begin(), place.index.end());
  index[*normal] = made.integer(Dim::symbol("\x01"
                                            "along"));
  ++shifts;
  ExprRef element = readAt(place.node->operand(0), index);
  --shifts;
  if (!element->is(Kind::Integer) || !element->dim.value() ||
      !place.index[*normal]->is(Kind::Integer))
    return nullptr;
  return made.integer(element->dim * (place.index[*normal]->dim + Dim::fixed(1)));
}

} // namespace kvopt::analysis
