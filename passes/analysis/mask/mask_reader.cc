// Reading of masks: constants, leaves and elementwise operators.
#include "passes/analysis/mask/mask_reader.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace kvopt::analysis {
using namespace ir;

using Kind = MaskExpression::Kind;

namespace {

constexpr unsigned maxNesting = 250;
constexpr unsigned maxWork = 200000;

/// Elementwise functions of one operand, without attributes, that are left uninterpreted.
llvm::StringRef opaqueFunction(llvm::StringRef op) {
  for (const char* name : {"Abs", "Log", "Exp", "Sqrt", "Floor", "Ceil", "Round", "Sign", "Tanh",
                           "Reciprocal", "Sigmoid", "Erf", "IsNaN", "Sin", "Cos"})
    if (op == name)
      return name;
  return {};
}

} // namespace

Dim MaskReader::modelDim(const Dim& dim) const {
  Dim known = IndexSpace::fromModel(dim);
  if (fixedSymbol.empty() || known.isUnknown())
    return known;
  return known.substitute([&](llvm::StringRef symbol) {
    return symbol == fixedSymbol ? std::optional<Dim>(fixedValue) : std::nullopt;
  });
}

ExprRef MaskReader::readMask(const Value& mask, const Dim& key) {
  if (!mask.type().hasRank() || mask.type().rank() > 4)
    return made.opaque(&mask, mask.type().elementType() == ElementType::Bool);
  ExprVector index;
  unsigned rank = mask.type().rank();
  for (unsigned axis = 0; axis < rank; ++axis) {
    auto variable = static_cast<IndexVariable>(4 - rank + axis);
    const Dim& asked = variable == IndexVariable::Key ? key : IndexSpace::variable(variable);
    index.push_back(broadcast(made.integer(asked), extentOf(mask, axis), space().extent(variable)));
  }
  return read(mask, index);
}

ExprRef MaskReader::read(const Value& value, ExprList asked) {
  const TensorType& type = value.type();
  bool isBoolean = type.elementType() == ElementType::Bool;
  if (!type.hasRank() || type.rank() != asked.size()) {
    IndexSet variables = noIndices;
    for (ExprRef part : asked)
      variables |= part->variables;
    return made.opaque(&value, isBoolean, variables);
  }
  ExprVector index(asked.begin(), asked.end());
  for (unsigned axis = 0; axis < type.rank(); ++axis)
    if (modelDim(type.shape()[axis]).value() == 1)
      index[axis] = made.number(0);
  ExprRef key = made.leaf(value, index);
  if (auto answer = answers.find(key); answer != answers.end())
    return answer->second;
  if (nesting >= maxNesting || work >= maxWork)
    return key;
  ++nesting;
  ++work;
  ExprRef answer = compute({value, value.producer(), index});
  --nesting;
  // An operator that mixes up truth values and numbers is not understood.
  if (answer->isBoolean != isBoolean)
    answer = key;
  answers[key] = answer;
  return answer;
}

ExprRef MaskReader::leaf(const Place& place) { return made.leaf(place.value, place.index); }

bool MaskReader::isOwnRow(const Place& place) {
  if (place.index.size() != 1 || !place.index[0]->is(Kind::Integer))
    return false;
  // A single length is every row's.
  const Dim& row = place.index[0]->dim;
  return row.isKnownEqual(IndexSpace::variable(IndexVariable::Batch)) ||
         (modelDim(place.value.type().dim(0)).value() == 1 && row.value() == 0);
}

ExprRef MaskReader::compute(const Place& place) {
  if (&place.value == counting && !place.index.empty() && place.index.back()->is(Kind::Integer))
    return made.integer(countingFrom + place.index.back()->dim);
  if (&place.value == measured && isOwnRow(place))
    return made.integer(IndexSpace::rowLength());
  if (ExprRef answer = known(place))
    return answer;
  if (const TensorData* data = place.value.constant())
    return readConstant(place, *data);
  if (!place.node)
    return leaf(place);
  if (ExprRef answer = moved(place))
    return answer;
  if (!place.node->op().isOnnx())
    return leaf(place);
  if (ExprRef answer = elementwise(place))
    return answer;
  if (ExprRef answer = generated(place))
    return answer;
  return leaf(place);
}

/// What shape inference knows of the element.
ExprRef MaskReader::known(const Place& place) {
  ElementType type = place.value.type().elementType();
  if (place.index.size() > 1 || (type != ElementType::Bool && !holdsIndices(type)))
    return nullptr;
  auto elements = place.value.knownIntegers();
  if (!elements)
    return nullptr;
  int64_t position = 0;
  if (!place.index.empty()) {
    if (!place.index[0]->is(Kind::Integer) || !place.index[0]->dim.value())
      return nullptr;
    position = *place.index[0]->dim.value();
  }
  if (position < 0 || position >= static_cast<int64_t>(elements->size()))
    return nullptr;
  Dim element = modelDim((*elements)[static_cast<size_t>(position)]);
  if (element.isUnknown())
    return nullptr;
  if (type != ElementType::Bool)
    return made.integer(element);
  return element.value() ? made.boolean(*element.value() != 0) : nullptr;
}

ExprRef MaskReader::readConstant(const Place& place, const TensorData& data) {
  auto found = tables.find(&data);
  if (found == tables.end())
    found = tables.try_emplace(&data, recognizeTable(data)).first;
  ExprRef element =
      found->second ? fromTable(place, *found->second, place.value.type().elementType()) : nullptr;
  return element ? element : leaf(place);
}

ExprRef MaskReader::fromTable(const Place& place, const ConstantTable& table, ElementType type) {
  auto constant = [&](double value) {
    return type == ElementType::Bool ? made.boolean(value != 0) : made.number(value);
  };
  auto isInteger = [&](unsigned axis) { return place.index[axis]->is(Kind::Integer); };
  if (table.form == ConstantTable::Form::Affine) {
    if (llvm::all_of(table.steps, [](int64_t step) { return step == 0; }))
      return constant(table.base);
    Dim element = Dim::fixed(static_cast<int64_t>(table.base));
    for (unsigned axis = 0; axis < place.index.size(); ++axis) {
      if (table.steps[axis] == 0)
        continue;
      if (!isInteger(axis))
        return nullptr;
      element = element + Dim::fixed(table.steps[axis]) * place.index[axis]->dim;
    }
    if (type == ElementType::Bool)
      return made.negate(made.isZero(element));
    return holdsIndices(type) ? made.integer(element) : nullptr;
  }
  if (!isInteger(table.rowAxis) || !isInteger(table.columnAxis))
    return nullptr;
  Dim difference = place.index[table.columnAxis]->dim - place.index[table.rowAxis]->dim;
  ExprRef element = constant(table.bands.front().value);
  for (const ConstantTable::Band& band : llvm::drop_begin(table.bands))
    element = made.select(made.atLeastZero(difference - Dim::fixed(band.first)),
                          constant(band.value), element);
  return element;
}

ExprRef MaskReader::operand(const Place& place, unsigned number) {
  const Value* value = place.node->operand(number);
  if (!value || !value->type().hasRank() || value->type().rank() > place.index.size())
    return nullptr;
  unsigned skipped = static_cast<unsigned>(place.index.size()) - value->type().rank();
  ExprVector index;
  for (unsigned axis = 0; axis < value->type().rank(); ++axis)
    index.push_back(broadcast(place.index[skipped + axis], extentOf(*value, axis),
                              extentOf(place.value, skipped + axis)));
  return read(*value, index);
}

ExprRef MaskReader::elementwise(const Place& place) {
  llvm::StringRef op = place.node->op().type();
  size_t operands = place.node->operands().size();
  if (op == "Where" && operands == 3) {
    ExprRef condition = operand(place, 0);
    ExprRef a = operand(place, 1);
    ExprRef b = operand(place, 2);
    return condition && a && b && condition->isBoolean ? made.select(condition, a, b) : nullptr;
  }
  if (op == "Clip" && operands >= 1) {
    ElementType type = place.value.type().elementType();
    ExprRef element = operand(place, 0);
    for (unsigned number : {1u, 2u}) {
      if (!element || !place.node->operand(number))
        continue;
      ExprRef bound = readAt(place.node->operand(number), {});
      element =
          number == 1 ? made.larger(element, bound, type) : made.smaller(element, bound, type);
    }
    // Before opset 11 the bounds are attributes.
    return operands == 1 && !place.node->attributes().empty() ? nullptr : element;
  }
  if (operands == 1)
    return unary(place, op);
  return operands == 2 ? binary(place, op) : nullptr;
}

ExprRef MaskReader::unary(const Place& place, llvm::StringRef op) {
  bool isInterpreted = op == "Not" || op == "Neg";
  llvm::StringRef function = opaqueFunction(op);
  bool isVariadic = op == "Min" || op == "Max" || op == "Sum";
  if (!isInterpreted && function.empty() && !isVariadic)
    return nullptr;
  ExprRef element = operand(place, 0);
  if (!element)
    return nullptr;
  ElementType type = place.value.type().elementType();
  ElementType from = place.node->operand(0)->type().elementType();
  if (isVariadic)
    return element;
  if (op == "Not")
    return element->isBoolean ? made.negate(element) : nullptr;
  if (element->isBoolean)
    return nullptr;
  if (op == "Neg")
    return made.multiply(element, made.number(-1), type);
  if (op == "Abs" && holdsIndices(type))
    return made.larger(element, made.multiply(element, made.number(-1), type), type);
  ExprRef kind = made.number(static_cast<double>(from));
  return made.apply(function, {element, kind}, type == ElementType::Bool);
}

ExprRef MaskReader::binary(const Place& place, llvm::StringRef op) {
  enum class Code {
    None,
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Min,
    Max,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    And,
    Or,
    Xor
  };
  auto code = llvm::StringSwitch<Code>(op)
                  .Cases("Add", "Sum", Code::Add)
                  .Case("Sub", Code::Sub)
                  .Case("Mul", Code::Mul)
                  .Case("Div", Code::Div)
                  .Case("Mod", Code::Mod)
                  .Case("Min", Code::Min)
                  .Case("Max", Code::Max)
                  .Case("Less", Code::Less)
                  .Case("LessOrEqual", Code::LessOrEqual)
                  .Case("Greater", Code::Greater)
                  .Case("GreaterOrEqual", Code::GreaterOrEqual)
                  .Case("Equal", Code::Equal)
                  .Cases("And", "BitwiseAnd", Code::And)
                  .Cases("Or", "BitwiseOr", Code::Or)
                  .Case("Xor", Code::Xor)
                  .Default(Code::None);
  if (code == Code::None)
    return nullptr;
  ExprRef a = operand(place, 0);
  ExprRef b = operand(place, 1);
  if (!a || !b || a->isBoolean != b->isBoolean)
    return nullptr;
  bool isLogic = code == Code::And || code == Code::Or || code == Code::Xor;
  if (isLogic ? !a->isBoolean : a->isBoolean && code != Code::Equal)
    return nullptr;
  ElementType type = place.node->operand(0)->type().elementType();
  bool isFloat = isFloatingPoint(type);
  // Unsigned and narrow integers wrap where polynomials do not.
  if (!a->isBoolean && !isFloat && !holdsIndices(type))
    return nullptr;
  switch (code) {
  case Code::Add:
    return made.add(a, b, type);
  case Code::Sub:
    return made.subtract(a, b, type);
  case Code::Mul:
    return made.multiply(a, b, type);
  case Code::Div:
    return made.divide(a, b, type);
  case Code::Mod:
    return place.node->intAttr("fmod", 0) == 0 && !isFloat ? made.remainder(a, b, type) : nullptr;
  case Code::Min:
    return made.smaller(a, b, type);
  case Code::Max:
    return made.larger(a, b, type);
  case Code::Less:
    return made.less(a, b);
  case Code::LessOrEqual:
    return made.lessOrEqual(a, b);
  case Code::Greater:
    return made.less(b, a);
  case Code::GreaterOrEqual:
    return made.lessOrEqual(b, a);
  case Code::Equal:
    return made.equal(a, b);
  case Code::And:
    return made.both(a, b);
  case Code::Or:
    return made.either(a, b);
  case Code::Xor:
    return made.negate(made.equal(a, b));
  case Code::None:
    break;
  }
  return nullptr;
}

ExprRef MaskReader::readAt(const Value* value, ExprList index) {
  return value ? read(*value, index) : made.opaque(nullptr, false);
}

std::optional<Dim> MaskReader::integerAt(const Value* value, int64_t position) {
  if (!value || !value->type().hasRank() || value->type().rank() > 1)
    return std::nullopt;
  ExprVector index;
  if (value->type().rank() == 1)
    index.push_back(made.number(static_cast<double>(position)));
  ExprRef element = read(*value, index);
  return element->is(Kind::Integer) ? std::optional<Dim>(element->dim) : std::nullopt;
}

std::optional<llvm::SmallVector<int64_t, 8>> MaskReader::constants(const Value* value) {
  if (!value)
    return std::nullopt;
  auto elements = value->knownIntegers();
  if (!elements)
    return std::nullopt;
  llvm::SmallVector<int64_t, 8> numbers;
  for (const Dim& element : *elements) {
    if (!element.value())
      return std::nullopt;
    numbers.push_back(*element.value());
  }
  return numbers;
}

} // namespace kvopt::analysis
