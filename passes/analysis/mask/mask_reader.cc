// Reading of masks, operator by operator.
#include "passes/analysis/mask/mask_reader.h"

#include "ir/elementwise.h"
#include "ir/op.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace kvopt::analysis {
using namespace ir;

using Kind = MaskExpression::Kind;

namespace {

constexpr unsigned maxNesting = 250;
constexpr unsigned maxWork = 200000;

/// Name of an elementwise function of one operand, without attributes, that is not interpreted;
/// empty for other operators.
llvm::StringRef opaqueFunction(const Node& node) {
  const std::optional<ElementFunction> function = elementFunction(node);
  const bool isOpaque = function == ElementFunction::Nonlinear ||
                        function == ElementFunction::Rounding || function == ElementFunction::Test;
  const OpDef* definition = node.definition();
  return isOpaque && node.op().isOnnx() && definition->operands.size() == 1 &&
                 definition->attributes.empty()
             ? definition->name.type() // owned by the registry, which outlives models
             : llvm::StringRef();
}

/// The function of numbers whose results no element type rounds.
std::optional<double> exactly(llvm::StringRef op, double x) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (op == "Log" && (x == 0 || x == 1))
    return x == 0 ? -infinity : 0.0;
  if (op == "Exp" && (x == 0 || x == -infinity))
    return x == 0 ? 1.0 : 0.0;
  if ((op == "Sqrt" && (x == 0 || x == 1)) || (op == "Reciprocal" && x == 1) ||
      ((op == "Tanh" || op == "Sin" || op == "Erf") && x == 0))
    return x;
  return std::nullopt;
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
  // An operator that mixes booleans and numbers is not supported.
  if (answer->isBoolean != isBoolean)
    answer = key;
  answers[key] = answer;
  return answer;
}

ExprRef MaskReader::leaf(const Place& place) { return made.leaf(place.value, place.index); }

bool MaskReader::isOwnRow(const Place& place) {
  if (place.index.size() != 1 || !place.index[0]->is(Kind::Integer))
    return false;
  // A single length applies to every row.
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

/// The element according to shape inference.
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
  if (!elementFunction(*place.node))
    return nullptr;
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
  llvm::StringRef function = opaqueFunction(*place.node);
  bool isVariadic = !place.node->definition()->maxOperands();
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
  if (op == "Sign" && (holdsIndices(type) || isFloatingPoint(type)))
    return made.sign(element, type);
  if (ExprRef exact = made.ofEnds(element, [&](ExprRef end) -> ExprRef {
        const auto result = end->constant() ? exactly(op, *end->constant()) : std::nullopt;
        return result ? made.number(*result) : nullptr;
      }))
    return exact;
  ExprRef kind = made.number(static_cast<double>(from));
  return made.apply(function, {element, kind}, type == ElementType::Bool);
}

ExprRef MaskReader::binary(const Place& place, llvm::StringRef op) {
  const ElementFunction function = *elementFunction(*place.node);
  const bool isLogic = function == ElementFunction::Logic || function == ElementFunction::Bits;
  if (function == ElementFunction::Nonlinear || op == "Mean")
    return nullptr;
  ExprRef a = operand(place, 0);
  ExprRef b = operand(place, 1);
  if (!a || !b || a->isBoolean != b->isBoolean)
    return nullptr;
  if (isLogic ? !a->isBoolean : a->isBoolean && op != "Equal")
    return nullptr;
  ElementType type = place.node->operand(0)->type().elementType();
  bool isFloat = isFloatingPoint(type);
  // Unsigned and narrow integers wrap around, and polynomials do not.
  if (!a->isBoolean && !isFloat && !holdsIndices(type))
    return nullptr;
  switch (function) {
  case ElementFunction::Sum:
    return op == "Sub" ? made.subtract(a, b, type) : made.add(a, b, type);
  case ElementFunction::Product:
    return made.multiply(a, b, type);
  case ElementFunction::Quotient:
    if (op == "Div")
      return made.divide(a, b, type);
    return place.node->intAttr("fmod", 0) == 0 && !isFloat ? made.remainder(a, b, type) : nullptr;
  case ElementFunction::Bound:
    return op == "Min" ? made.smaller(a, b, type) : made.larger(a, b, type);
  case ElementFunction::Comparison:
    if (op == "Equal")
      return made.equal(a, b);
    if (op == "Greater" || op == "GreaterOrEqual")
      std::swap(a, b);
    return op == "Less" || op == "Greater" ? made.less(a, b) : made.lessOrEqual(a, b);
  default:
    if (op == "Xor")
      return made.negate(made.equal(a, b));
    if (op == "And" || op == "BitwiseAnd")
      return made.both(a, b);
    return op == "Or" || op == "BitwiseOr" ? made.either(a, b) : nullptr;
  }
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

// Operators that move elements, as maps from an index to an operand's index.

using Kind = MaskExpression::Kind;

ExprRef MaskReader::broadcast(ExprRef index, const Dim& from, const Dim& to) {
  if (isOne(from) || isOne(to))
    return made.number(0);
  if (index->constant() == 0.0 || from.isKnownEqual(to) || from.isKnownDifferent(Dim::fixed(1)))
    return index;
  // An index below the extent is 0 if the extent is 1.
  if (index->is(Kind::Integer) && !from.isUnknown() &&
      space().isNonNegative(modelDim(from) - index->dim - Dim::fixed(1)))
    return index;
  // 0 if `from` is 1.
  if (from.isUnknown())
    return made.opaque(nullptr, false, index->variables);
  bool isNew = llvm::none_of(choices, [&](const Choice& choice) {
    return choice.from.isKnownEqual(from) && choice.to.isKnownEqual(to);
  });
  if (isNew && !to.isUnknown() && choices.size() < 4)
    choices.push_back({from, to});
  return made.apply("Broadcast", {index, made.integer(modelDim(from))}, false);
}

ExprRef MaskReader::wrapped(ExprRef index, const Dim& extent) {
  Dim known = modelDim(extent);
  if (index->is(Kind::Integer)) {
    if (space().isNonNegative(index->dim))
      return index;
    if (space().isNonNegative(-index->dim - Dim::fixed(1)) && !known.isUnknown())
      return made.integer(index->dim + known);
  }
  if (known.isUnknown())
    return made.opaque(nullptr, false, index->variables);
  return made.apply("Wrap", {index, made.integer(known)}, false);
}

ExprRef MaskReader::moved(const Place& place) {
  std::optional<Movement> movement = movementOf(place.value);
  if (!movement || !place.node->operand(movement->data)->type().hasRank())
    return nullptr;
  const Value& data = *place.node->operand(movement->data);
  switch (movement->kind) {
  case MovementKind::Same:
  case MovementKind::Broadcast:
    return operand(place, movement->data);
  case MovementKind::Convert:
    return converted(place, *movement);
  case MovementKind::Permutation:
    return permuted(place, *movement);
  case MovementKind::InsertAxes:
    return withoutAxes(place, *movement);
  case MovementKind::RemoveAxes:
    return withAxes(place, *movement);
  case MovementKind::Reshape:
    return reshape(place, data);
  case MovementKind::Repeat:
    return repeat(place, *movement);
  case MovementKind::Slice:
    return slice(place, *movement);
  case MovementKind::Gather:
    return gather(place, *movement);
  case MovementKind::PointGather:
    return pointGather(place, *movement);
  case MovementKind::Concat:
    return concat(place, *movement);
  }
  return nullptr;
}

ExprRef MaskReader::converted(const Place& place, const Movement& movement) {
  ElementType from = place.node->operand(movement.data)->type().elementType();
  ElementType to = place.value.type().elementType();
  if (from == ElementType::Undefined || to == ElementType::Undefined)
    return nullptr;
  ExprRef element = operand(place, movement.data);
  return element ? made.cast(element, from, to) : nullptr;
}

ExprRef MaskReader::permuted(const Place& place, const Movement& movement) {
  const Value& data = *place.node->operand(movement.data);
  if (!movement.axes || movement.axes->size() != place.index.size())
    return nullptr;
  ExprVector index(data.type().rank(), nullptr);
  for (unsigned axis = 0; axis < index.size(); ++axis)
    index[(*movement.axes)[axis]] = place.index[axis];
  return read(data, index);
}

ExprRef MaskReader::withoutAxes(const Place& place, const Movement& movement) {
  const Value& data = *place.node->operand(movement.data);
  if (!movement.axes)
    return nullptr;
  ExprVector index;
  for (unsigned axis = 0; axis < place.index.size(); ++axis)
    if (!llvm::is_contained(*movement.axes, axis))
      index.push_back(place.index[axis]);
  return index.size() == data.type().rank() ? read(data, index) : nullptr;
}

ExprRef MaskReader::withAxes(const Place& place, const Movement& movement) {
  const Value& data = *place.node->operand(movement.data);
  if (!movement.axes || place.index.size() + movement.axes->size() != data.type().rank())
    return nullptr;
  ExprVector index(place.index.begin(), place.index.end());
  for (unsigned axis : *movement.axes)
    index.insert(index.begin() + axis, made.number(0));
  return read(data, index);
}

llvm::SmallVector<MaskReader::LiveAxis, 4> MaskReader::liveAxes(const TensorType& type) const {
  llvm::SmallVector<LiveAxis, 4> live;
  for (unsigned axis = 0; axis < type.rank(); ++axis)
    if (Dim extent = modelDim(type.shape()[axis]); !isOne(extent))
      live.push_back({axis, extent});
  return live;
}

/// Maps groups of axes with equal products of extents to each other: within a group through the
/// flat index, which the operand's extents divide.
ExprRef MaskReader::reshape(const Place& place, const Value& data) {
  llvm::SmallVector<LiveAxis, 4> outer = liveAxes(place.value.type());
  llvm::SmallVector<LiveAxis, 4> inner = liveAxes(data.type());
  ExprVector index(data.type().rank(), made.number(0));
  size_t o = 0;
  size_t n = 0;
  const ElementType integers = ElementType::Int64;
  while (o < outer.size() || n < inner.size()) {
    size_t oEnd = o;
    size_t nEnd = n;
    Dim outerCount = Dim::fixed(1);
    Dim innerCount = Dim::fixed(1);
    // The shortest groups of equal size.
    bool isFound = false;
    for (size_t total = 2; total <= (outer.size() - o) + (inner.size() - n) && !isFound; ++total)
      for (size_t taken = 1; taken < total && !isFound; ++taken) {
        if (taken > outer.size() - o || total - taken > inner.size() - n)
          continue;
        outerCount = innerCount = Dim::fixed(1);
        for (oEnd = o; oEnd < o + taken; ++oEnd)
          outerCount = outerCount * outer[oEnd].extent;
        for (nEnd = n; nEnd < n + total - taken; ++nEnd)
          innerCount = innerCount * inner[nEnd].extent;
        isFound = outerCount.isKnownEqual(innerCount);
      }
    if (!isFound)
      return nullptr;
    ExprRef flat = made.number(0);
    for (; o < oEnd; ++o)
      flat = made.add(made.multiply(flat, made.integer(outer[o].extent), integers),
                      place.index[outer[o].axis], integers);
    for (size_t k = nEnd; k-- > n;) {
      bool isFirst = k == n;
      ExprRef extent = made.integer(inner[k].extent);
      index[inner[k].axis] = isFirst ? flat : made.remainder(flat, extent, integers);
      if (!isFirst)
        flat = made.divide(flat, extent, integers);
    }
    n = nEnd;
  }
  return read(data, index);
}

ExprRef MaskReader::repeat(const Place& place, const Movement& movement) {
  const Value& data = *place.node->operand(movement.data);
  if (data.type().rank() != place.index.size())
    return nullptr;
  ExprVector index;
  for (unsigned axis = 0; axis < data.type().rank(); ++axis) {
    Dim extent = modelDim(data.type().shape()[axis]);
    if (extent.isKnownEqual(modelDim(place.value.type().shape()[axis])))
      index.push_back(place.index[axis]);
    else if (isOne(extent))
      index.push_back(made.number(0));
    else if (isRepeatedOnce(movement, axis))
      index.push_back(place.index[axis]);
    else if (extent.isUnknown())
      return nullptr;
    else
      index.push_back(made.remainder(place.index[axis], made.integer(extent), ElementType::Int64));
  }
  return read(data, index);
}

ExprRef MaskReader::slice(const Place& place, const Movement& movement) {
  const Value& data = *place.node->operand(movement.data);
  if (data.type().rank() != place.index.size())
    return nullptr;
  ExprVector index;
  for (unsigned axis = 0; axis < data.type().rank(); ++axis) {
    Window window = windowOf(movement, data, axis);
    if (window.step == 0)
      return nullptr;
    ExprRef at = place.index[axis];
    if (window.step != 1)
      at = made.multiply(at, made.number(static_cast<double>(window.step)), ElementType::Int64);
    index.push_back(made.add(at, made.integer(window.start), ElementType::Int64));

    // All T keys of a mask are in a constant of N >= 2 elements. If T were greater than N, the
    // slice would have N elements, which is neither T nor 1, and the mask would not broadcast.
    std::optional<int64_t> extent = data.type().shape()[axis].value();
    const Dim& keys = space().extent(IndexVariable::Key);
    bool isKeyAxis = place.index[axis]->is(Kind::Integer) &&
                     place.index[axis]->dim.isKnownEqual(IndexSpace::variable(IndexVariable::Key));
    if (extent && *extent >= 2 && isKeyAxis && shifts == 0 && window.step == 1 &&
        window.start.value() == 0 && window.end.isKnownEqual(keys)) {
      granted.push_back({keys, Dim::fixed(*extent)});
      made.learnNonNegative(Dim::fixed(*extent) - keys);
    }
  }
  return read(data, index);
}

ExprRef MaskReader::concat(const Place& place, const Movement& movement) {
  std::optional<unsigned> axis = movement.axis();
  if (!axis || !place.index[*axis]->is(Kind::Integer))
    return nullptr;
  auto parts = place.node->operands().drop_front(movement.data);
  // From the last part to the first: index < end ? part : the parts after it.
  llvm::SmallVector<Dim, 4> starts;
  Dim start = Dim::fixed(0);
  for (const Use& use : parts) {
    if (!use.value() || !use.value()->type().hasRank() ||
        use.value()->type().rank() != place.index.size())
      return nullptr;
    starts.push_back(start);
    start = start + extentOf(*use.value(), *axis);
    if (start.isUnknown() && &use != &parts.back())
      return nullptr;
  }
  const Dim& at = place.index[*axis]->dim;
  ExprRef element = nullptr;
  ++shifts;
  for (size_t k = starts.size(); k-- > 0;) {
    ExprVector index(place.index.begin(), place.index.end());
    index[*axis] = made.integer(at - starts[k]);
    ExprRef isHere = made.boolean(true);
    if (element)
      isHere = made.atLeastZero(starts[k + 1] - at - Dim::fixed(1));
    // A part without such an index is not read, because nothing is known about it there.
    if (isHere->is(Kind::False))
      continue;
    bool isBefore = made.atLeastZero(at - starts[k])->is(Kind::False);
    if (isBefore && k != 0)
      continue;
    ExprRef part = read(*parts[k].value(), index);
    element = element ? made.select(isHere, part, element) : part;
  }
  --shifts;
  return element;
}

ExprRef MaskReader::pad(const Place& place) {
  const Value& data = *place.node->operand(0);
  unsigned rank = data.type().rank();
  const Value* pads = place.node->operand(1);
  if (!pads || place.node->operand(3) || rank != place.index.size() ||
      place.node->stringAttr("mode", "constant") != "constant")
    return nullptr;
  ExprVector index;
  ExprRef isInside = made.boolean(true);
  for (unsigned axis = 0; axis < rank; ++axis) {
    auto before = integerAt(pads, axis);
    auto after = integerAt(pads, axis + rank);
    if (!before || !after)
      return nullptr;
    if (before->value() == 0 && after->value() == 0) {
      index.push_back(place.index[axis]);
      continue;
    }
    Dim extent = modelDim(data.type().shape()[axis]);
    if (!place.index[axis]->is(Kind::Integer) || extent.isUnknown())
      return nullptr;
    Dim at = place.index[axis]->dim - *before;
    index.push_back(made.integer(at));
    isInside = made.conjunction(
        {isInside, made.atLeastZero(at), made.atLeastZero(extent - at - Dim::fixed(1))});
  }
  bool isBoolean = place.value.type().elementType() == ElementType::Bool;
  ExprRef outside = isBoolean ? made.boolean(false) : made.number(0);
  if (place.node->operand(2))
    outside = readAt(place.node->operand(2), {});
  ++shifts;
  ExprRef inside = read(data, index);
  --shifts;
  return made.select(isInside, inside, outside);
}

// Elements at positions that another tensor holds.

using Kind = MaskExpression::Kind;

/// An index that is read for all b, h, i and j is within the extent, or the graph would fail.
void MaskReader::learnFrom(ExprRef index, const Dim& extent) {
  Dim known = modelDim(extent);
  if (shifts != 0 || !index->is(Kind::Integer) || index->variables == noIndices ||
      known.isUnknown() || !space().isNonNegative(index->dim))
    return;
  if (std::optional<Dim> last = space().largest(index->dim))
    made.learnNonNegative(known - *last - Dim::fixed(1));
}

ExprRef MaskReader::gather(const Place& place, const Movement& movement) {
  const Value& data = *place.node->operand(movement.data);
  const Value* indices = place.node->operand(movement.indices);
  std::optional<unsigned> axis = movement.axis();
  if (!axis || !indices || !indices->type().hasRank())
    return nullptr;
  unsigned indexRank = indices->type().rank();
  if (data.type().rank() - 1 + indexRank != place.index.size())
    return nullptr;
  ExprRef position = read(*indices, place.index.slice(*axis, indexRank));
  learnFrom(position, data.type().shape()[*axis]);
  ExprVector index(place.index.begin(), place.index.begin() + *axis);
  index.push_back(wrapped(position, data.type().shape()[*axis]));
  llvm::append_range(index, place.index.drop_front(*axis + indexRank));
  return read(data, index);
}

ExprRef MaskReader::pointGather(const Place& place, const Movement& movement) {
  const Value& data = *place.node->operand(movement.data);
  if (!movement.axes)
    return nullptr;
  const Value& indices = *place.node->operand(movement.indices);
  unsigned outer = indices.type().rank() - 1;
  auto width = static_cast<unsigned>(movement.axes->size());
  if (outer > place.index.size() || data.type().rank() - width != place.index.size() - outer)
    return nullptr;
  ExprVector at(place.index.begin(), place.index.begin() + outer);
  at.push_back(nullptr);
  ExprVector index;
  for (unsigned axis = 0; axis < width; ++axis) {
    at.back() = made.number(axis);
    ExprRef position = read(indices, at);
    learnFrom(position, data.type().shape()[axis]);
    index.push_back(wrapped(position, data.type().shape()[axis]));
  }
  llvm::append_range(index, place.index.drop_front(outer));
  return read(data, index);
}

/// An update of a whole block, whose indices count up from 0 on every axis, or of rows.
ExprRef MaskReader::scatterND(const Place& place) {
  const Value& data = *place.node->operand(0);
  const Value* indices = place.node->operand(1);
  const Value* updates = place.node->operand(2);
  unsigned rank = data.type().rank();
  if (!indices || !updates || !indices->type().hasRank() || !updates->type().hasRank() ||
      place.node->stringAttr("reduction", "none") != "none")
    return nullptr;
  unsigned outer = updates->type().rank();
  if (indices->type().rank() == 2 && indices->type().dim(-1).value() == 1 && outer == rank)
    return scatterRows(place);
  if (indices->type().rank() != outer + 1 || indices->type().dim(-1).value() != rank ||
      outer != rank)
    return nullptr;
  // The update at [i0, i1, …] goes to [i0, i1, …]; it is read at the same index.
  ExprVector at(place.index.begin(), place.index.end());
  at.push_back(nullptr);
  ExprRef isUpdated = made.boolean(true);
  for (unsigned axis = 0; axis < rank; ++axis) {
    Dim extent = modelDim(updates->type().shape()[axis]);
    if (!place.index[axis]->is(Kind::Integer) || extent.isUnknown() ||
        !countsUp(*indices, axis, rank))
      return nullptr;
    isUpdated =
        made.both(isUpdated, made.atLeastZero(extent - place.index[axis]->dim - Dim::fixed(1)));
  }
  ++shifts;
  ExprRef update = read(*updates, place.index);
  --shifts;
  return made.select(isUpdated, update, read(data, place.index));
}

/// An update of consecutive entries of the first axis, `mask[first:first + n] = updates`; between
/// two transpositions it assigns a slice of any axis.
ExprRef MaskReader::scatterRows(const Place& place) {
  // First at the mask's own index: facts about extents from its tables apply to the updates, too.
  ExprRef before = read(*place.node->operand(0), place.index);
  const Value& indices = *place.node->operand(1);
  const Value& updates = *place.node->operand(2);
  Dim count = extentOf(updates, 0);
  if (count.isUnknown())
    count = extentOf(indices, 0);
  // A result for a symbol that no model has holds for every entry.
  const Dim entry = Dim::symbol("\x01"
                                "entry");
  ++shifts;
  ExprRef position = read(indices, {made.integer(entry), made.number(0)});
  --shifts;
  if (!place.index[0]->is(Kind::Integer) || !position->is(Kind::Integer) || count.isUnknown())
    return nullptr;
  Dim first = position->dim - entry;
  auto symbols = first.symbols();
  // Entries before 0 would count from the end.
  if (llvm::is_contained(symbols, entry.symbols().front()) || !space().isNonNegative(first))
    return nullptr;
  Dim from = place.index[0]->dim - first;
  ExprRef isUpdated =
      made.both(made.atLeastZero(from), made.atLeastZero(count - from - Dim::fixed(1)));
  ExprVector index(place.index.begin(), place.index.end());
  index[0] = made.integer(from);
  ++shifts;
  ExprRef update = read(updates, index);
  --shifts;
  return made.select(isUpdated, update, before);
}

/// Whether the last axis of `indices` at position `axis` holds the index on `axis` itself.
bool MaskReader::countsUp(const Value& indices, unsigned axis, unsigned rank) {
  ExprVector at;
  for (unsigned k = 0; k < rank; ++k)
    at.push_back(made.integer(Dim::symbol("\x01"
                                          "at" +
                                          std::to_string(k))));
  at.push_back(made.number(axis));
  // The index on an axis of one element is 0.
  ExprRef own = modelDim(indices.type().shape()[axis]).value() == 1 ? made.number(0) : at[axis];
  ++shifts;
  bool isOwn = read(indices, at) == own;
  --shifts;
  return isOwn;
}

// Operators that generate elements from their position.

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

/// A running sum of a value that is constant along the axis.
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

// Extents, also those that only the producing operators determine.

using Kind = MaskExpression::Kind;

std::optional<Dim> MaskReader::numberOf(const MovementNumber& number) {
  if (Dim known = modelDim(number.known); !known.isUnknown())
    return known;
  return integerAt(number.list, number.entry);
}

bool MaskReader::isRepeatedOnce(const Movement& movement, unsigned axis) {
  std::optional<Dim> count =
      axis < movement.counts.size() ? numberOf(movement.counts[axis]) : std::nullopt;
  return count && isOne(*count);
}

MaskReader::Window MaskReader::windowOf(const Movement& movement, const Value& data,
                                        unsigned axis) {
  Window whole{Dim::fixed(0), modelDim(data.type().shape()[axis]), 1, true};
  Window none{Dim::unknown(), Dim::unknown(), 0, false};
  if (!movement.axes)
    return none;
  const auto* found = llvm::find(*movement.axes, axis);
  if (found == movement.axes->end())
    return whole;
  const MovementRange& range = movement.ranges[found - movement.axes->begin()];
  auto start = numberOf(range.start);
  auto end = numberOf(range.end);
  auto step = numberOf(range.step);
  if (!start || !step || !step->value() || *step->value() < 1)
    return none;
  Window window{*start, end.value_or(Dim::unknown()), *step->value(), false};
  auto fromEnd = [&](Dim& bound) {
    if (!space().isNonNegative(-bound - Dim::fixed(1)))
      return;
    bound = bound + whole.end;
  };
  fromEnd(window.start);
  fromEnd(window.end);
  // An element exists, so a start within or after the extent was not clamped; one before 0 was.
  if (!space().isNonNegative(window.start))
    return none;
  return window;
}

Dim MaskReader::slicedExtent(const Movement& movement, const Value& data, unsigned axis,
                             unsigned depth) {
  Window window = windowOf(movement, data, axis);
  const Dim extent = extentOf(data, axis, depth + 1);
  if (window.isWhole)
    return extent;
  if (window.step != 1 || window.end.isUnknown() || extent.isUnknown() ||
      !space().isNonNegative(window.end - window.start))
    return Dim::unknown();
  if (!space().isNonNegative(extent - window.end)) {
    if (!mayAssume || !extent.value())
      return Dim::unknown();
    assumed.push_back({window.end, extent});
  }
  return window.end - window.start;
}

Dim MaskReader::extentOf(const Value& value, unsigned axis, unsigned depth) {
  constexpr unsigned maxDepth = 12;
  if (!value.type().hasRank() || axis >= value.type().rank())
    return Dim::unknown();
  Dim declared = modelDim(value.type().shape()[axis]);
  const Node* node = value.producer();
  if (!declared.isUnknown() || !node || depth == maxDepth)
    return declared;
  std::optional<MovementKind> kind = movementKind(*node);
  if (kind && kind != MovementKind::Same && kind != MovementKind::Convert)
    return movedExtent(value, axis, depth).value_or(declared);
  if (!node->op().isOnnx())
    return declared;
  llvm::StringRef op = node->op().type();
  unsigned rank = value.type().rank();
  const Value* first = node->operand(0);
  if ((op == "ScatterND" || op == "CumSum") && first && first->type().hasRank() &&
      first->type().rank() == rank)
    return extentOf(*first, axis, depth + 1);
  if (op == "Range" && node->operands().size() == 3 && holdsIndices(value.type().elementType())) {
    auto start = integerAt(node->operand(0), 0), limit = integerAt(node->operand(1), 0);
    auto step = integerAt(node->operand(2), 0);
    return start && limit && step && isOne(*step) ? *limit - *start : declared;
  }
  if (!isElementwise(*node))
    return declared;
  Dim extent = Dim::fixed(1);
  bool isCommon = true;
  for (const Use& use : node->operands()) {
    if (!use.value() || !use.value()->type().hasRank() || use.value()->type().rank() > rank)
      return declared;
    unsigned skipped = rank - use.value()->type().rank();
    if (axis < skipped)
      continue;
    Dim own = extentOf(*use.value(), axis - skipped, depth + 1);
    // Next to T (or S), any other extent is T (or S), or 1; if T is 1, the only index is 0, and
    // other extents do not matter.
    if (own.isKnownEqual(space().extent(IndexVariable::Key)) ||
        own.isKnownEqual(space().extent(IndexVariable::Row)))
      return own;
    if (isOne(own))
      continue;
    isCommon &= !own.isUnknown() && (isOne(extent) || extent.isKnownEqual(own));
    extent = own;
  }
  return isCommon ? extent : declared;
}

std::optional<Dim> MaskReader::movedExtent(const Value& value, unsigned axis, unsigned depth) {
  const Node& node = *value.producer();
  const Movement movement = *movementOf(value);
  const Value& data = *node.operand(movement.data);
  const unsigned rank = value.type().rank();
  auto isSameRank = [&](const Value* operand) {
    return operand && operand->type().hasRank() && operand->type().rank() == rank;
  };
  switch (movement.kind) {
  case MovementKind::Permutation:
    if (!movement.axes || !isSameRank(&data))
      return std::nullopt;
    return extentOf(data, (*movement.axes)[axis], depth + 1);
  case MovementKind::InsertAxes: {
    if (!movement.axes || !data.type().hasRank())
      return std::nullopt;
    if (llvm::is_contained(*movement.axes, axis))
      return Dim::fixed(1);
    auto inserted = llvm::count_if(*movement.axes, [&](unsigned other) { return other < axis; });
    return extentOf(data, axis - static_cast<unsigned>(inserted), depth + 1);
  }
  case MovementKind::Broadcast: {
    auto target = movement.counts.empty() ? std::nullopt : numberOf(movement.counts[axis]);
    bool isMasks = target && (target->isKnownEqual(space().extent(IndexVariable::Key)) ||
                              target->isKnownEqual(space().extent(IndexVariable::Row)));
    return isMasks ? target : std::nullopt;
  }
  case MovementKind::Repeat:
    if (!isSameRank(&data) || !isRepeatedOnce(movement, axis))
      return std::nullopt;
    return extentOf(data, axis, depth + 1);
  case MovementKind::Slice:
    if (!isSameRank(&data))
      return std::nullopt;
    return slicedExtent(movement, data, axis, depth);
  case MovementKind::Concat: {
    if (movement.axis() != axis)
      return std::nullopt;
    Dim sum = Dim::fixed(0);
    for (const Use& use : node.operands().drop_front(movement.data))
      sum =
          isSameRank(use.value()) ? sum + extentOf(*use.value(), axis, depth + 1) : Dim::unknown();
    return sum;
  }
  case MovementKind::Same:
  case MovementKind::Convert:
  case MovementKind::Reshape:
  case MovementKind::RemoveAxes:
  case MovementKind::Gather:
  case MovementKind::PointGather:
    return std::nullopt;
  }
  return std::nullopt;
}

bool MaskReader::assumptionsHold() const {
  return llvm::all_of(assumed, [&](const Bound& bound) {
    return llvm::any_of(granted, [&](const Bound& grant) {
      return bound.smaller.isKnownLessEqual(grant.smaller) &&
             grant.larger.isKnownLessEqual(bound.larger);
    });
  });
}

} // namespace kvopt::analysis
