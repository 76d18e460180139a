// Element expressions of masks as ONNX operators.
#include "passes/builders/mask_writer.h"

#include "support/format.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <cmath>

namespace kvopt::builders {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

using Kind = MaskExpression::Kind;

constexpr IndexVariable everyIndex[] = {IndexVariable::Batch, IndexVariable::Head,
                                        IndexVariable::Row, IndexVariable::Key};

/// A polynomial that is linear in the row, the key and the head, with numeric factors.
struct LinearPlace {
  int64_t factors[4] = {};
  int64_t offset = 0;
};

std::optional<LinearPlace> linearPlace(const Dim& dim) {
  LinearPlace place;
  Dim rest = dim;
  for (IndexVariable index : everyIndex) {
    const std::optional<Dim> factor = linearFactor(rest, index);
    if (!factor || !factor->value())
      return std::nullopt;
    place.factors[static_cast<unsigned>(index)] = *factor->value();
    rest = rest - *factor * IndexSpace::variable(index);
  }
  if (!rest.value())
    return std::nullopt;
  place.offset = *rest.value();
  return place;
}

/// The variable, if the index is a single variable; nullopt otherwise.
std::optional<IndexVariable> soleVariable(ExprRef index) {
  if (index->is(Kind::Integer))
    for (IndexVariable variable : everyIndex)
      if (index->dim.isKnownEqual(IndexSpace::variable(variable)))
        return variable;
  return std::nullopt;
}

/// Result type of the functions Cast, ToFloat and CastFloat, or the type in which a function of one
/// operand computes.
std::optional<ElementType> namedType(ExprRef applied) {
  if (applied->operands.size() != 2 || applied->isBoolean)
    return std::nullopt;
  const bool isNamed =
      llvm::StringSwitch<bool>(applied->name)
          .Cases("Add", "Mul", "Div", "Mod", "IntDiv", "IntMod", "Min", "Max", false)
          .Cases("Broadcast", "Wrap", false)
          .Default(true);
  const std::optional<double> type = isNamed ? applied->operands[1]->constant() : std::nullopt;
  return type ? std::optional(static_cast<ElementType>(static_cast<int>(*type))) : std::nullopt;
}

bool convertsTo(llvm::StringRef name) {
  return name == "Cast" || name == "ToFloat" || name == "CastFloat";
}

/// Type in which a number is computed; nullopt if any type can represent it.
std::optional<ElementType> typeOf(ExprRef expression) {
  if (expression->is(Kind::Leaf)) {
    const ElementType type = expression->value->type().elementType();
    return isInteger(type) ? ElementType::Int64 : type;
  }
  if (expression->is(Kind::Apply)) {
    if (startsWith(expression->name, "Int") || expression->name == "Wrap")
      return ElementType::Int64;
    if (const auto type = namedType(expression))
      return isInteger(*type) ? ElementType::Int64 : *type;
  }
  const bool isSelect = expression->is(Kind::Select);
  for (ExprRef operand : ExprList(expression->operands).drop_front(isSelect ? 1 : 0))
    if (const auto type = typeOf(operand))
      return type;
  return std::nullopt;
}

/// ONNX operator of a function; empty if the function is not supported. Functions that the reader
/// does not interpret have the operator's name.
llvm::StringRef operatorOf(llvm::StringRef function) {
  return llvm::StringSwitch<llvm::StringRef>(function)
      .Cases("ToFloat", "CastFloat", "NonZero", "Cast")
      .Case("IntDiv", "Div")
      .Case("IntMod", "Mod")
      .Case("Wrap", "Where")
      .Cases("Broadcast", "IsNaN", "Mod", {})
      .Default(function);
}

bool isTable(const Value& value) {
  return value.constant() && value.type().hasRank() &&
         llvm::all_of(value.type().shape(),
                      [](const Dim& extent) { return extent.value().has_value(); });
}

/// Whether a leaf's index uses the row or the key; nullopt for other indices.
std::optional<IndexVariable> placeOf(ExprRef leaf) {
  std::optional<IndexVariable> place;
  for (unsigned axis = 0; axis < leaf->operands.size(); ++axis) {
    const ExprRef index = leaf->operands[axis];
    if (index->constant() == 0.0 && leaf->value->type().dim(axis).value() == 1)
      continue;
    const auto variable = soleVariable(index);
    if (!variable || (*variable == IndexVariable::Batch && axis != 0) ||
        *variable == IndexVariable::Head || (*variable != IndexVariable::Batch && place))
      return std::nullopt;
    if (*variable != IndexVariable::Batch)
      place = variable;
  }
  return place;
}

} // namespace

std::optional<std::string>
maskObstacle(ExprRef expression, const IndexSpace& space,
             llvm::function_ref<bool(const Value&, IndexVariable)> isAvailable) {
  const auto refused = [&] {
    return expression->value ? formatted("an element of '{}'", expression->value->name())
                             : std::string("an unsupported expression");
  };
  switch (expression->kind) {
  case Kind::Integer:
  case Kind::AtLeastZero:
  case Kind::IsZero:
  case Kind::IsNotZero: {
    const auto place = linearPlace(expression->dim);
    const auto uses = [&](IndexVariable index) {
      return place && place->factors[static_cast<unsigned>(index)] != 0;
    };
    if (!place || uses(IndexVariable::Batch) ||
        (uses(IndexVariable::Head) && !space.extent(IndexVariable::Head).value()))
      return formatted("the number {}", IndexSpace::print(expression->dim));
    return std::nullopt;
  }
  case Kind::Leaf:
    if (!isTable(*expression->value)) {
      const auto place = placeOf(expression);
      return place && isAvailable(*expression->value, *place) ? std::nullopt
                                                              : std::optional(refused());
    }
    break;
  case Kind::Apply:
    if (operatorOf(expression->name).empty())
      return formatted("an unsupported expression ({})", expression->name.str());
    break;
  case Kind::Opaque:
    return refused();
  default:
    break;
  }
  for (ExprRef operand : expression->operands)
    if (auto why = maskObstacle(operand, space, isAvailable))
      return why;
  return std::nullopt;
}

Value& MaskWriter::write(ExprRef expression, ElementType type) {
  Value*& known = written[{expression, static_cast<unsigned>(type)}];
  if (known)
    return *known;
  Value& result = compute(expression, type);
  return *(written[{expression, static_cast<unsigned>(type)}] = &result);
}

Value& MaskWriter::compute(ExprRef expression, ElementType type) {
  switch (expression->kind) {
  case Kind::Integer:
    if (const auto fixed = expression->dim.value())
      return number(static_cast<double>(*fixed), type);
    return build.castTo(polynomial(expression->dim), type);
  case Kind::Number:
    return number(expression->number, type);
  case Kind::Leaf:
    return build.castTo(leaf(expression), type);
  case Kind::Select:
    return build.node("Where",
                      {write(expression->operands[0], ElementType::Bool),
                       write(expression->operands[1], type), write(expression->operands[2], type)});
  case Kind::Sum:
    return build.castTo(arithmetic(expression, typeOf(expression).value_or(type)), type);
  case Kind::Apply:
    return applied(expression, type);
  default:
    return logical(expression);
  }
}

Value& MaskWriter::logical(ExprRef expression) {
  switch (expression->kind) {
  case Kind::False:
  case Kind::True:
    return build.value(boolTensor({expression->is(Kind::True)}));
  case Kind::And:
    return joined("And", expression->operands, ElementType::Bool);
  case Kind::Or:
    return joined("Or", expression->operands, ElementType::Bool);
  case Kind::Not:
    return build.node("Not", {write(expression->operands[0], ElementType::Bool)});
  default:
    return comparison(expression);
  }
}

/// Terms that are subtracted move to the other side.
Value& MaskWriter::comparison(ExprRef expression) {
  const LinearPlace place = *linearPlace(expression->dim);
  Dim left = Dim::fixed(std::max<int64_t>(place.offset, 0));
  for (IndexVariable index : everyIndex)
    left = left + Dim::fixed(std::max<int64_t>(place.factors[static_cast<unsigned>(index)], 0)) *
                      IndexSpace::variable(index);
  Value& larger = polynomial(left);
  Value& smaller = polynomial(left - expression->dim);
  if (expression->is(Kind::AtLeastZero))
    return build.node("LessOrEqual", {smaller, larger});
  Value& isEqual = build.node("Equal", {larger, smaller});
  return expression->is(Kind::IsZero) ? isEqual : build.node("Not", {isEqual});
}

Value& MaskWriter::joined(llvm::StringRef op, ExprList operands, ElementType type) {
  Value* result = nullptr;
  for (ExprRef operand : operands) {
    Value& next = write(operand, type);
    result = result ? &build.node(OpName("", op), {*result, next}) : &next;
  }
  return *result;
}

Value& MaskWriter::arithmetic(ExprRef expression, ElementType type) {
  return joined(expression->is(Kind::Sum) ? "Add" : operatorOf(expression->name),
                expression->operands, type);
}

Value& MaskWriter::applied(ExprRef expression, ElementType type) {
  const llvm::StringRef name = expression->name;
  const ExprRef first = expression->operands[0];
  if (name == "NonZero" || convertsTo(name)) {
    const ElementType to = name == "NonZero" ? ElementType::Bool : *namedType(expression);
    Value& from = write(first, typeOf(first).value_or(ElementType::Float));
    return build.castTo(build.castTo(from, to), type);
  }
  if (name == "Wrap") {
    Value& index = write(first, ElementType::Int64);
    Value& fromEnd = build.node("Add", {index, write(expression->operands[1], ElementType::Int64)});
    Value& isNegative = build.node("Less", {index, ints({0})});
    return build.castTo(build.node("Where", {isNegative, fromEnd, index}), type);
  }
  if (expression->operands.size() == 2 && namedType(expression)) {
    const ElementType in = *namedType(expression);
    return build.castTo(build.node(OpName("", operatorOf(name)), {write(first, in)}), type);
  }
  const ElementType in =
      typeOf(expression).value_or(expression->isBoolean ? ElementType::Float : type);
  if (!expression->isBoolean)
    return build.castTo(arithmetic(expression, in), type);
  const bool isLogical = first->isBoolean;
  return joined(operatorOf(name), expression->operands, isLogical ? ElementType::Bool : in);
}

Value& MaskWriter::leaf(ExprRef expression) {
  if (isTable(*expression->value))
    return tableEntry(expression);
  const IndexVariable place = *placeOf(expression);
  Value* result = &elements(*expression->value, place);
  if (isInteger(result->type().elementType()))
    result = &build.castTo(*result, ElementType::Int64);
  // Axes of extent 1 are removed; [B, S] or [S] remains.
  llvm::SmallVector<int64_t, 4> ones;
  for (unsigned axis = 0; axis < expression->operands.size(); ++axis)
    if (!soleVariable(expression->operands[axis]))
      ones.push_back(axis);
  if (!ones.empty())
    result = &build.node("Squeeze", {*result, ints(ones)});
  const bool hasBatch = expression->operands.size() - ones.size() == 2;
  const bool isRow = place == IndexVariable::Row;
  if (hasBatch)
    return build.node("Unsqueeze", {*result, isRow ? ints({1, 3}) : ints({1, 2})});
  return isRow ? build.unsqueeze(*result, 1) : *result;
}

/// The entry is found by its row-major index.
Value& MaskWriter::tableEntry(ExprRef expression) {
  Value& table = const_cast<Value&>(*expression->value);
  Value* entry = &build.value(ints({0}));
  int64_t stride = 1;
  Value* sum = nullptr;
  for (size_t axis = expression->operands.size(); axis-- > 0;) {
    const int64_t extent = *table.type().dim(static_cast<int64_t>(axis)).value();
    const ExprRef index = expression->operands[axis];
    if (index->constant() != 0.0) {
      Value& place = write(index, ElementType::Int64);
      Value& part = stride == 1 ? place : build.node("Mul", {place, ints({stride})});
      sum = sum ? &build.node("Add", {*sum, part}) : &part;
    }
    stride *= extent;
  }
  if (sum)
    entry = sum;
  Value& list = build.node("Reshape", {table, ints({-1})});
  Value& result = build.node("Gather", {list, *entry}, {}, "entry");
  return isInteger(result.type().elementType()) ? build.castTo(result, ElementType::Int64) : result;
}

Value& MaskWriter::polynomial(const Dim& dim) {
  const LinearPlace place = *linearPlace(dim);
  Value* sum = nullptr;
  const auto add = [&](Value& term) { sum = sum ? &build.node("Add", {*sum, term}) : &term; };
  for (IndexVariable index : everyIndex)
    if (const int64_t factor = place.factors[static_cast<unsigned>(index)]; factor != 0)
      add(factor == 1 ? variable(index) : build.node("Mul", {variable(index), ints({factor})}));
  if (place.offset != 0 || !sum)
    add(build.value(ints({place.offset})));
  return *sum;
}

Value& MaskWriter::variable(IndexVariable index) {
  if (index == IndexVariable::Key)
    return *places.keys;
  if (index == IndexVariable::Row)
    return build.unsqueeze(*places.rows, 1);
  llvm::SmallVector<int64_t, 32> heads(
      static_cast<size_t>(*space.extent(IndexVariable::Head).value()));
  for (size_t head = 0; head < heads.size(); ++head)
    heads[head] = static_cast<int64_t>(head);
  return build.node("Unsqueeze", {ints(heads), ints({1, 2})});
}

Value& MaskWriter::number(double value, ElementType type) {
  if (type == ElementType::Int64)
    return build.value(ints({static_cast<int64_t>(value)}));
  return build.value(floatScalar(type, value));
}

} // namespace kvopt::builders
