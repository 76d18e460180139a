// Evaluation of values, one operator at a time.
#include "passes/analysis/rotation/form_evaluator.h"

#include "passes/analysis/rotation/form_operators.h"

#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <bit>
#include <cmath>
#include <unordered_map>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Limit for tables.
constexpr int64_t mostNumbers = int64_t{1} << 25;
constexpr unsigned mostDepth = 256;
constexpr int64_t earlierRows = 3;

void setExtent(const Dim& dim, int64_t value, llvm::StringMap<int64_t>& extents) {
  const auto symbols = dim.symbols();
  if (symbols.size() == 1 && dim == Dim::symbol(symbols.front()))
    extents.try_emplace(symbols.front(), value);
}

bool isArithmetic(llvm::StringRef type) {
  return llvm::StringSwitch<bool>(type)
      .Cases("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "MatMul", "Einsum", true)
      .Cases("Neg", "Cos", "Sin", "Sqrt", "Reciprocal", "Exp", "Log", true)
      .Default(false);
}

/// Whether a product with the constant only changes signs, one scale, and, for a matrix, the order
/// of columns.
bool onlyRearranges(const TensorData& constant, bool isMatrix) {
  constexpr int64_t mostEntries = 1 << 18;
  const auto numbers = floatValues(constant, mostEntries);
  if (!numbers || numbers->empty())
    return false;
  double scale = 0;
  for (double number : *numbers)
    scale = std::max(scale, std::abs(number));
  if (!isMatrix)
    return scale > 0 &&
           llvm::all_of(*numbers, [&](double number) { return std::abs(number) == scale; });
  if (constant.shape().size() != 2)
    return false;
  const int64_t columns = constant.shape()[1];
  std::vector<int> inRow(static_cast<size_t>(constant.shape()[0]), 0);
  std::vector<int> inColumn(static_cast<size_t>(columns), 0);
  for (int64_t i = 0; i < constant.elementCount(); ++i) {
    const double number = (*numbers)[static_cast<size_t>(i)];
    if (number == 0)
      continue;
    if (std::abs(number) != scale || ++inRow[static_cast<size_t>(i / columns)] > 1 ||
        ++inColumn[static_cast<size_t>(i % columns)] > 1)
      return false;
  }
  return scale > 0;
}

bool isFree(const FormTensor& tensor) {
  return llvm::all_of(tensor.forms, [](const PositionForm& form) { return form.isPositionFree(); });
}

/// The graph input from which the elements are moved, or compared with a constant; null if there is
/// none.
const Value* inputBehind(const Value* value) {
  for (unsigned step = 0; value && step < 16; ++step) {
    const Node* node = value->producer();
    if (!node)
      return value->isGraphInput() ? value : nullptr;
    const bool isTest = node->is("Not") || (node->is("Equal") && node->operand(1)->constant());
    value = movementKind(*node) ? movedOperand(*node) : isTest ? node->operand(0) : nullptr;
  }
  return nullptr;
}

} // namespace

FormEvaluator::FormEvaluator(const PositionFlow& positions, llvm::ArrayRef<AttentionSite> sites)
    : flow(positions) {
  for (const AttentionSite& site : sites) {
    if (!site.isMatched() || site.isCross || !site.node->operand(0)->type().hasRank())
      continue;
    setExtent(site.node->operand(0)->type().dim(0), 1, extents);
    setExtent(site.node->operand(0)->type().dim(2), tokens, extents);
    if (site.key && site.update == CacheUpdate::Grows) {
      const Dim& past = site.key->past->type().dim(site.key->axis);
      setExtent(past, earlierRows, extents);
      if (past.symbols().size() == 1 && pastSymbol.empty())
        pastSymbol = past.symbols().front();
    }
  }
}

const FormTensor* FormEvaluator::fail(const Node* node, std::string reason) {
  if (why.empty()) {
    why = std::move(reason);
    place = node;
  }
  return nullptr;
}

FormEvaluator::Tensor FormEvaluator::failed(const Node& node, std::string reason) {
  fail(&node, std::move(reason));
  return nullptr;
}

const FormTensor* FormEvaluator::evaluate(const Value& value) {
  if (depth == 0) {
    why.clear();
    place = nullptr;
    isMixed = false;
  }
  if (const auto found = known.find(&value); found != known.end())
    return found->second.get();
  if (depth == mostDepth)
    return fail(value.producer(), "the chain of operators is too long");
  ++depth;
  Tensor made = budget > 0 ? compute(value) : nullptr;
  if (made)
    budget -= made->count();
  --depth;
  known[&value] = made;
  if (!made)
    return fail(value.producer(), "its result could not be evaluated");
  return made.get();
}

void FormEvaluator::forgetRows() {
  for (auto at = known.begin(); at != known.end(); ++at)
    if (flow.of(*at->first) != PositionFlow::State::Constant &&
        flow.of(*at->first) != PositionFlow::State::Position)
      known.erase(at);
}

FormEvaluator::Tensor FormEvaluator::compute(const Value& value) {
  if (value.constant())
    return constant(value);
  if (flow.of(value) == PositionFlow::State::Data) {
    Tensor made = rearranged(value);
    return made ? made : rawElements(value);
  }
  if (const auto integers = value.knownIntegers())
    if (Tensor made = integersOf(value, *integers))
      return made;
  const Node* node = value.producer();
  if (!node)
    return positionsOf(value);
  return ofNode(value, *node);
}

std::optional<int64_t> FormEvaluator::extent(const Dim& dim) const {
  return dim.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
    const auto found = extents.find(symbol);
    // The remaining symbols count all tokens.
    return found == extents.end() ? earlierRows + tokens : found->second;
  });
}

std::optional<FormEvaluator::Shape> FormEvaluator::shapeOf(const Value& value) const {
  if (!value.type().hasRank())
    return std::nullopt;
  Shape shape;
  for (const Dim& dim : value.type().shape()) {
    const auto number = extent(dim);
    if (!number)
      return std::nullopt;
    shape.push_back(*number);
  }
  const auto count = elementsOf(shape);
  return count && *count <= mostForms ? std::optional(shape) : std::nullopt;
}

unsigned FormEvaluator::sourceOf(const void* owner, int64_t part) {
  return sources.try_emplace({owner, part}, static_cast<unsigned>(sources.size())).first->second;
}

/// An extent as a line in the number of earlier rows, or in another symbol that counts tokens.
std::optional<PositionForm> FormEvaluator::formOf(const Dim& dim) {
  std::string variable;
  for (const std::string& symbol : dim.symbols())
    if (symbol == pastSymbol || !extents.count(symbol)) {
      if (!variable.empty())
        return std::nullopt;
      variable = symbol;
    }
  const auto at = [&](int64_t x) {
    return dim.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
      return symbol == variable ? x : extents.lookup(symbol);
    });
  };
  const auto first = at(0);
  const auto second = at(1);
  const auto third = at(2);
  if (!first || !second || !third || *third - *second != *second - *first)
    return std::nullopt;
  PositionForm form = PositionForm::number(static_cast<double>(*first));
  if (*second != *first) {
    PositionFunction line;
    line.kind = PositionFunction::Kind::Position;
    line.source = sourceOf(this, static_cast<int64_t>(llvm::hash_value(variable)));
    form.add(PositionForm::function(line, static_cast<double>(*second - *first)));
  }
  return form;
}

FormEvaluator::Tensor FormEvaluator::constant(const Value& value) {
  const TensorData& data = *value.constant();
  if (data.elementCount() > mostNumbers)
    return nullptr;
  auto made = std::make_shared<FormTensor>();
  made->shape.assign(data.shape().begin(), data.shape().end());
  if (isFloatingPoint(data.elementType())) {
    const auto numbers = floatValues(data, mostNumbers);
    if (!numbers)
      return nullptr;
    made->numbers.assign(numbers->begin(), numbers->end());
    return made;
  }
  const auto integers = integerValues(data, mostNumbers);
  if (!integers)
    return nullptr;
  made->numbers.assign(integers->begin(), integers->end());
  return made;
}

FormEvaluator::Tensor FormEvaluator::rawElements(const Value& value) {
  const auto shape = shapeOf(value);
  if (!shape)
    return nullptr;
  auto made = std::make_shared<FormTensor>();
  made->shape = *shape;
  const int64_t count = *elementsOf(*shape);
  const auto [found, isNew] = firstAtoms.try_emplace(&value, atoms);
  if (isNew)
    atoms += count;
  for (int64_t i = 0; i < count; ++i)
    made->forms.push_back(PositionForm::raw(found->second + i));
  return made;
}

/// Evaluates values that consist of moved and negated raw elements, so that swapped halves can be
/// recognized. Null for other values.
FormEvaluator::Tensor FormEvaluator::rearranged(const Value& value) {
  const Node* node = value.producer();
  if (!node)
    return nullptr;
  const std::optional<MovementKind> movement = movementKind(*node);
  const auto isData = [&](const Value* operand) {
    return operand && flow.of(*operand) == PositionFlow::State::Data;
  };
  const auto isOfConstants = [&](const Use& use) {
    return use.operandIndex() == 0 || (use.value() && use.value()->constant());
  };
  bool isFollowed = false;
  if (movement)
    isFollowed = llvm::all_of(node->operands(),
                              [&](const Use& use) {
                                return !use.value() || !isMoved(use) || isData(use.value());
                              }) &&
                 (movement != MovementKind::Gather || isOfConstants(node->operands()[1]));
  else if (node->is("Neg"))
    isFollowed = isData(node->operand(0));
  else if (node->is("Mul") || node->is("MatMul"))
    isFollowed = isData(node->operand(0)) && node->operand(1)->constant() &&
                 onlyRearranges(*node->operand(1)->constant(), node->is("MatMul"));
  if (!isFollowed)
    return nullptr;
  // An incompletely known movement is harmless: its result consists of raw elements like its
  // operand.
  const std::string reason = why;
  const Node* at = place;
  Tensor made = movement ? moved(value, *node) : computed(value, *node);
  if (!made) {
    why = reason;
    place = at;
  }
  return made;
}

/// Along its last axis an input counts up from its first number.
FormEvaluator::Tensor FormEvaluator::positionsOf(const Value& input) {
  const auto shape = shapeOf(input);
  const ElementType type = input.type().elementType();
  if (!shape || !input.isGraphInput() || (type != ElementType::Int64 && type != ElementType::Int32))
    return nullptr;
  auto made = std::make_shared<FormTensor>();
  made->shape = *shape;
  const int64_t run = shape->empty() ? 1 : shape->back();
  for (int64_t i = 0; i < *elementsOf(*shape); ++i) {
    PositionFunction line;
    line.kind = PositionFunction::Kind::Position;
    line.source = sourceOf(&input, i / run);
    made->forms.push_back(PositionForm::function(line));
    made->forms.back().add(PositionForm::number(static_cast<double>(i % run)));
  }
  return made;
}

FormEvaluator::Tensor FormEvaluator::integersOf(const Value& value, llvm::ArrayRef<Dim> dims) {
  auto made = std::make_shared<FormTensor>();
  if (!value.type().hasRank() || value.type().rank() > 1)
    return nullptr;
  if (value.type().rank() == 1)
    made->shape.push_back(static_cast<int64_t>(dims.size()));
  std::vector<PositionForm> forms;
  for (const Dim& dim : dims) {
    auto form = formOf(dim);
    if (!form)
      return nullptr;
    forms.push_back(std::move(*form));
  }
  made->take(std::move(forms));
  return made;
}

FormEvaluator::Tensor FormEvaluator::ofNode(const Value& value, const Node& node) {
  if (movementKind(node))
    return moved(value, node);
  const llvm::StringRef type = node.op().type();
  if (type == "RotaryEmbedding" && (node.op().isOnnx() || node.op().domain() == "com.microsoft"))
    return rotated(node);
  if (node.is("Range"))
    return range(value, node);
  if (node.is("CumSum") || node.is("ReduceSum"))
    return counted(value, node);
  if (node.is("GatherElements"))
    return gatheredElements(node);
  if (node.is("Where"))
    return chosen(node);
  return node.op().isOnnx() && isArithmetic(type) ? computed(value, node) : opaque(value, node);
}

FormEvaluator::Tensor FormEvaluator::computed(const Value& value, const Node& node) {
  // Products with weights are not computed if they do not depend on positions.
  bool isOfRows = false;
  bool isPositionFree = true;
  for (const Use& use : node.operands()) {
    if (!use.value() || flow.isFree(*use.value()))
      continue;
    const FormTensor* operand = evaluate(*use.value());
    if (!operand)
      return nullptr;
    isOfRows |= !operand->isNumeric();
    isPositionFree &= isFree(*operand);
  }
  if (isOfRows && isPositionFree && flow.of(value) == PositionFlow::State::Both)
    return rawElements(value);
  constexpr int64_t mostWeights = 1 << 16;
  const auto isProjection = [&](const Use& use) {
    return use.value() && use.value()->constant() &&
           use.value()->constant()->elementCount() > mostWeights;
  };
  if (node.is("MatMul") && llvm::any_of(node.operands(), isProjection)) {
    isMixed = flow.of(value) == PositionFlow::State::Both;
    return failed(node, "it projects rows that depend on positions");
  }
  llvm::SmallVector<const FormTensor*, 2> operands;
  for (const Use& use : node.operands()) {
    const FormTensor* operand = use.value() ? evaluate(*use.value()) : nullptr;
    if (!operand)
      return nullptr;
    operands.push_back(operand);
  }
  const llvm::StringRef type = node.op().type();
  std::string reason;
  Tensor made;
  if (operands.size() == 1)
    made = changedForms(type, *operands[0], reason);
  else if (operands.size() != 2)
    return failed(node, "it has unsupported operands");
  else if (type == "MatMul")
    made = multipliedForms(*operands[0], *operands[1], reason);
  else if (type == "Einsum")
    made = einsumForms(node.stringAttr("equation", ""), *operands[0], *operands[1], reason);
  else
    made = combinedForms(type, *operands[0], *operands[1],
                         !isFloatingPoint(value.type().elementType()), reason);
  if (!made)
    isMixed = llvm::any_of(node.operands(), [&](const Use& use) {
      return flow.of(*use.value()) == PositionFlow::State::Both;
    });
  return made ? made : failed(node, reason);
}

/// The result of any operator on constants and elements that do not depend on positions.
FormEvaluator::Tensor FormEvaluator::opaque(const Value& value, const Node& node) {
  for (const Use& use : node.operands()) {
    if (!use.value() || flow.isFree(*use.value()))
      continue;
    const FormTensor* operand = evaluate(*use.value());
    if (!operand)
      return nullptr;
    if (isFree(*operand))
      continue;
    isMixed |= flow.of(*use.value()) == PositionFlow::State::Both;
    return failed(node, "it is not linear in the rows, with factors that are functions of the "
                        "position");
  }
  if (!node.subgraphs().empty())
    return failed(node, "it contains subgraphs, which are not followed");
  return rawElements(value);
}

// Movement.

FormEvaluator::Tensor FormEvaluator::picked(const Value& value, const FormTensor& data, Shape shape,
                                            llvm::ArrayRef<int64_t> indices) {
  auto made = std::make_shared<FormTensor>();
  made->shape = std::move(shape);
  if (llvm::any_of(indices, [&](int64_t i) { return i < 0 || i >= data.count(); }))
    return failed(*value.producer(), "its extents are not known");
  if (data.isNumeric()) {
    for (int64_t index : indices)
      made->numbers.push_back(data.numbers[static_cast<size_t>(index)]);
    return made;
  }
  std::vector<PositionForm> forms;
  for (int64_t index : indices)
    forms.push_back(data.at(index));
  made->take(std::move(forms));
  return made;
}

FormEvaluator::Tensor FormEvaluator::moved(const Value& value, const Node& node) {
  const std::optional<Movement> movement = movementOf(value);
  const Value* source = movedOperand(node);
  if (!movement || !source)
    return failed(node, "its movement of elements is not known");
  if (movement->is(MovementKind::Concat))
    return concatenated(node, *movement);
  if (movement->is(MovementKind::Gather))
    return gathered(node, *movement);
  const FormTensor* data = evaluate(*source);
  if (!data)
    return nullptr;
  if (movement->is(MovementKind::Slice))
    return sliced(value, node, *movement);
  const auto shape = shapeOf(value);
  if (!shape)
    return failed(node, "its extents are not known");
  const int64_t count = *elementsOf(*shape);
  std::vector<int64_t> indices(static_cast<size_t>(count));
  switch (movement->kind) {
  case MovementKind::Convert: {
    const ElementType type = value.type().elementType();
    const auto isLine = [](const PositionForm& form) { return form.asLine().has_value(); };
    if ((type == ElementType::Float16 || type == ElementType::BFloat16) &&
        llvm::any_of(data->forms, isLine))
      return failed(node, "it rounds positions or angles to 16 bits");
    [[fallthrough]];
  }
  case MovementKind::Same:
  case MovementKind::Reshape:
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes: {
    if (count != data->count())
      return failed(node, "its extents are not known");
    auto made = std::make_shared<FormTensor>(*data);
    made->shape = *shape;
    return made;
  }
  case MovementKind::Permutation: {
    if (!movement->axes || movement->axes->size() != data->shape.size())
      return failed(node, "the order of its axes is not known");
    const auto from = stridesOf(data->shape);
    const auto to = stridesOf(*shape);
    for (int64_t i = 0; i < count; ++i)
      for (size_t axis = 0; axis < shape->size(); ++axis)
        indices[static_cast<size_t>(i)] +=
            i / to[axis] % (*shape)[axis] * from[(*movement->axes)[axis]];
    return picked(value, *data, *shape, indices);
  }
  case MovementKind::Broadcast:
    if (broadcastShape(data->shape, *shape) != shape)
      return failed(node, "its extents are not known");
    return picked(value, *data, *shape, broadcastIndices(data->shape, *shape));
  case MovementKind::Repeat: {
    if (data->shape.size() != shape->size())
      return failed(node, "its extents are not known");
    const auto from = stridesOf(data->shape);
    const auto to = stridesOf(*shape);
    for (int64_t i = 0; i < count; ++i)
      for (size_t axis = 0; axis < shape->size(); ++axis)
        indices[static_cast<size_t>(i)] +=
            i / to[axis] % (*shape)[axis] % std::max<int64_t>(data->shape[axis], 1) * from[axis];
    return picked(value, *data, *shape, indices);
  }
  case MovementKind::Slice:
  case MovementKind::Gather:
  case MovementKind::PointGather:
  case MovementKind::Concat:
    break;
  }
  return opaque(value, node);
}

/// Slices; for a table of numbers also a range that starts at a position.
FormEvaluator::Tensor FormEvaluator::sliced(const Value& value, const Node& node,
                                            const Movement& movement) {
  const FormTensor& data = *evaluate(*movedOperand(node));
  auto shape = shapeOf(value);
  // A table may end before the last position, so inference does not determine the extent.
  const bool isTold = shape && shape->size() == data.shape.size();
  if (!isTold)
    shape = data.shape;
  if (!movement.axes)
    return failed(node, "the part that it keeps is not known");
  Shape starts(shape->size(), 0);
  Shape steps(shape->size(), 1);
  std::optional<unsigned> along;
  PositionForm::Line line;
  for (size_t i = 0; i < movement.axes->size(); ++i) {
    const unsigned axis = (*movement.axes)[i];
    const MovementRange& range = movement.ranges[i];
    const auto step = range.step.known.value();
    const auto start = extent(range.start.known);
    if (!step || !start)
      return failed(node, "the part that it keeps is not known");
    steps[axis] = *step;
    starts[axis] = *start < 0 ? *start + data.shape[axis] : *start;
    if (!isTold) {
      const auto end = extent(range.end.known);
      if (!end || *end < 0 || *step != 1 || starts[axis] < 0 || starts[axis] > data.shape[axis])
        return failed(node, "the part that it keeps is not known");
      (*shape)[axis] = std::max<int64_t>(std::min(*end, data.shape[axis]) - starts[axis], 0);
    }
    if (data.isNumeric() && !range.start.known.value()) {
      const auto form = formOf(range.start.known);
      const auto begin = form ? form->asLine() : std::nullopt;
      if (!begin || begin->slope != 1 || *step != 1 || along)
        return failed(node, "it cuts a table at indices that are not consecutive");
      along = axis;
      line = *begin;
    }
  }
  const auto from = stridesOf(data.shape);
  const auto to = stridesOf(*shape);
  const int64_t count = *elementsOf(*shape);
  if (!along) {
    std::vector<int64_t> indices(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      for (size_t axis = 0; axis < shape->size(); ++axis)
        indices[static_cast<size_t>(i)] +=
            (starts[axis] + i / to[axis] % (*shape)[axis] * steps[axis]) * from[axis];
    return picked(value, data, *shape, indices);
  }
  std::vector<PositionForm> forms;
  for (int64_t i = 0; i < count; ++i) {
    int64_t column = 0;
    for (size_t axis = 0; axis < shape->size(); ++axis) {
      const int64_t entryAt = starts[axis] + i / to[axis] % (*shape)[axis] * steps[axis];
      if (axis == *along)
        continue;
      if (entryAt < 0 || entryAt >= data.shape[axis])
        return failed(node, "the part that it keeps is not known");
      column = column * data.shape[axis] + entryAt;
    }
    PositionForm::Line own = line;
    own.offset += static_cast<double>(i / to[*along] % (*shape)[*along]);
    forms.push_back(entry(data, *along, column, own));
  }
  auto made = std::make_shared<FormTensor>();
  made->shape = *shape;
  made->take(std::move(forms));
  return made;
}

PositionForm FormEvaluator::entry(const FormTensor& table, unsigned axis, int64_t column,
                                  const PositionForm::Line& line) {
  std::vector<int64_t>& first = firstColumns[{&table, axis}];
  const int64_t rows = table.shape[axis];
  const int64_t inner = stridesOf(table.shape)[axis];
  const auto at = [&](int64_t row, int64_t spot) {
    return table.numbers[static_cast<size_t>((spot / inner * rows + row) * inner + spot % inner)];
  };
  if (first.empty()) {
    const int64_t columns = rows == 0 ? 0 : table.count() / rows;
    std::vector<llvm::hash_code> hashes(static_cast<size_t>(columns), llvm::hash_code(0));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t spot = 0; spot < columns; ++spot)
        hashes[static_cast<size_t>(spot)] = llvm::hash_combine(
            hashes[static_cast<size_t>(spot)], std::bit_cast<uint64_t>(at(row, spot)));
    std::unordered_map<size_t, int64_t> seen;
    for (int64_t spot = 0; spot < columns; ++spot) {
      const int64_t candidate =
          seen.try_emplace(hashes[static_cast<size_t>(spot)], spot).first->second;
      bool isSame = true;
      for (int64_t row = 0; row < rows && isSame; ++row)
        isSame = at(row, candidate) == at(row, spot);
      first.push_back(isSame ? candidate : spot);
    }
  }
  const int64_t spot = first[static_cast<size_t>(column)];
  PositionFunction function;
  function.kind = PositionFunction::Kind::Entry;
  function.source = line.source;
  function.offset = line.offset;
  function.table = &table;
  function.axis = axis;
  function.column = spot;
  return PositionForm::function(function);
}

FormEvaluator::Tensor FormEvaluator::gathered(const Node& node, const Movement& movement) {
  const FormTensor* data = evaluate(*node.operand(movement.data));
  const FormTensor* places = data ? evaluate(*node.operand(movement.indices)) : nullptr;
  if (!places)
    return nullptr;
  const auto axis = movement.axis();
  if (!axis)
    return failed(node, "the axis that it selects from is not known");
  if (data->count() == 0 || *axis >= data->shape.size())
    return failed(node, "it selects from an empty axis");
  const int64_t inner = stridesOf(data->shape)[*axis];
  const int64_t rows = data->shape[*axis];
  const int64_t outer = data->count() / rows / inner;
  auto made = std::make_shared<FormTensor>();
  made->shape.assign(data->shape.begin(), data->shape.begin() + *axis);
  made->shape.append(places->shape.begin(), places->shape.end());
  made->shape.append(data->shape.begin() + *axis + 1, data->shape.end());
  if (outer * places->count() * inner > mostForms)
    return failed(node, "it selects too many elements");
  std::vector<PositionForm> forms;
  for (int64_t before = 0; before < outer; ++before)
    for (int64_t i = 0; i < places->count(); ++i)
      for (int64_t after = 0; after < inner; ++after) {
        const PositionForm form = places->at(i);
        if (const auto number = form.asNumber()) {
          if (!(std::abs(*number) <= static_cast<double>(mostNumbers)))
            return failed(node, "it selects entries outside its operand");
          const int64_t row = static_cast<int64_t>(*number) + (*number < 0 ? rows : 0);
          if (row < 0 || row >= rows)
            return failed(node, "it selects entries outside its operand");
          forms.push_back(data->at((before * rows + row) * inner + after));
          continue;
        }
        const auto line = form.asLine();
        if (!line || line->slope != 1 || !data->isNumeric())
          return failed(node, "it selects entries by something other than a position");
        forms.push_back(entry(*data, *axis, before * inner + after, *line));
      }
  made->take(std::move(forms));
  return made;
}

/// Tables by position: each index selects an entry along its own axis.
FormEvaluator::Tensor FormEvaluator::gatheredElements(const Node& node) {
  const FormTensor* data = evaluate(*node.operand(0));
  const FormTensor* places = data ? evaluate(*node.operand(1)) : nullptr;
  if (!places)
    return nullptr;
  const auto axis =
      normalizedAxis(node.intAttr("axis", 0), static_cast<unsigned>(data->shape.size()));
  if (!axis || !data->isNumeric() || data->count() == 0 ||
      places->shape.size() != data->shape.size() || places->count() > mostForms)
    return failed(node, "it selects entries of something other than a table");
  for (unsigned each = 0; each < data->shape.size(); ++each)
    if (each != *axis && places->shape[each] > data->shape[each])
      return failed(node, "it selects entries outside its operand");
  const auto to = stridesOf(places->shape);
  std::vector<PositionForm> forms;
  for (int64_t i = 0; i < places->count(); ++i) {
    int64_t column = 0;
    for (size_t each = 0; each < data->shape.size(); ++each)
      if (each != *axis)
        column = column * data->shape[each] + i / to[each] % places->shape[each];
    const auto line = places->at(i).asLine();
    if (!line || line->slope != 1)
      return failed(node, "it selects entries by something other than a position");
    forms.push_back(entry(*data, *axis, column, *line));
  }
  auto made = std::make_shared<FormTensor>();
  made->shape = places->shape;
  made->take(std::move(forms));
  return made;
}

FormEvaluator::Tensor FormEvaluator::concatenated(const Node& node, const Movement& movement) {
  const auto axis = movement.axis();
  if (!axis)
    return failed(node, "the axis that it joins along is not known");
  auto made = std::make_shared<FormTensor>();
  llvm::SmallVector<const FormTensor*, 4> parts;
  for (const Use& use : node.operands()) {
    if (use.operandIndex() < movement.data)
      continue;
    const FormTensor* part = evaluate(*use.value());
    if (!part)
      return nullptr;
    if (part->shape.size() <= *axis)
      return failed(node, "its extents are not known");
    if (parts.empty())
      made->shape = part->shape;
    else
      made->shape[*axis] += part->shape[*axis];
    parts.push_back(part);
  }
  const int64_t inner = stridesOf(made->shape)[*axis];
  const auto count = elementsOf(made->shape);
  if (!count || *count > mostForms)
    return failed(node, "it joins too many elements");
  const int64_t run = made->shape[*axis] * inner;
  std::vector<PositionForm> forms;
  for (int64_t before = 0; run != 0 && before < *count / run; ++before)
    for (const FormTensor* part : parts) {
      const int64_t own = part->shape[*axis] * inner;
      if (part->count() != *count / run * own)
        return failed(node, "its extents are not known");
      for (int64_t i = 0; i < own; ++i)
        forms.push_back(part->at(before * own + i));
    }
  made->take(std::move(forms));
  return made;
}

// Operators on positions.

FormEvaluator::Tensor FormEvaluator::range(const Value& value, const Node& node) {
  const FormTensor* start = evaluate(*node.operand(0));
  const FormTensor* step = start ? evaluate(*node.operand(2)) : nullptr;
  if (!step)
    return nullptr;
  std::optional<int64_t> count;
  const FormTensor* limit = evaluate(*node.operand(1));
  if (!limit || limit->count() != 1 || start->count() != 1 || step->count() != 1)
    return nullptr;
  PositionForm length = limit->at(0);
  length.add(start->at(0), -1);
  const auto apart = step->at(0).asNumber();
  if (const auto fixed = length.asNumber(); fixed && apart && *apart != 0)
    count = static_cast<int64_t>(
        std::clamp(std::ceil(*fixed / *apart), 0.0, static_cast<double>(mostForms) + 1));
  else if (const auto shape = shapeOf(value); shape && apart && !value.type().dim(0).isUnknown())
    count = shape->front();
  if (!count || *count > mostForms)
    return failed(node, "the end of its range is not known");
  std::vector<PositionForm> forms;
  for (int64_t i = 0; i < *count; ++i) {
    forms.push_back(start->at(0));
    forms.back().add(PositionForm::number(*apart * static_cast<double>(i)));
  }
  auto made = std::make_shared<FormTensor>();
  made->shape = {*count};
  made->take(std::move(forms));
  return made;
}

/// Number of visible tokens in a mask [B,T] up to and including each column, or in total: it
/// increases by one from one visible token to the next.
FormEvaluator::Tensor FormEvaluator::counted(const Value& value, const Node& node) {
  const Value* mask = inputBehind(node.operand(0));
  const auto shape = shapeOf(value);
  const auto maskShape = mask ? shapeOf(*mask) : std::nullopt;
  const auto axis = knownIntegersOf(node, 1, "axes");
  const bool isSum = node.is("ReduceSum");
  if (!mask || !shape || !maskShape || maskShape->size() != 2 || !axis || axis->size() != 1 ||
      node.intAttr("exclusive", 0) != 0 || node.intAttr("reverse", 0) != 0 ||
      normalizedAxis(axis->front(), 2) != 1u)
    return isSum ? opaque(value, node)
                 : failed(node, "it sums something other than a mask's columns");
  auto made = std::make_shared<FormTensor>();
  made->shape = *shape;
  for (int64_t i = 0; i < *elementsOf(*shape); ++i) {
    PositionFunction line;
    line.kind = PositionFunction::Kind::Position;
    line.source = sourceOf(mask, -1 - (isSum ? i : i / shape->back()));
    made->forms.push_back(PositionForm::function(line));
    const int64_t column = isSum ? maskShape->back() - 1 : i % shape->back();
    made->forms.back().add(PositionForm::number(static_cast<double>(column)));
  }
  return made;
}

/// Two forms of the same value, or positions of visible tokens and a number for others.
FormEvaluator::Tensor FormEvaluator::chosen(const Node& node) {
  const FormTensor* first = evaluate(*node.operand(1));
  const FormTensor* second = first ? evaluate(*node.operand(2)) : nullptr;
  if (!second)
    return nullptr;
  const auto shape = broadcastShape(first->shape, second->shape);
  if (!shape)
    return failed(node, "the shapes of its operands do not match");
  const auto left = broadcastIndices(first->shape, *shape);
  const auto right = broadcastIndices(second->shape, *shape);
  const Value* mask = inputBehind(node.operand(0));
  const auto isMasks = [&](const PositionForm& form) {
    const auto line = form.asLine();
    return mask && line && line->source == sourceOf(mask, -1);
  };
  std::vector<PositionForm> forms;
  for (size_t i = 0; i < left.size(); ++i) {
    PositionForm a = first->at(left[i]);
    PositionForm b = second->at(right[i]);
    PositionForm difference = a;
    difference.add(b, -1);
    if (difference.terms().empty() || (isMasks(a) && b.asNumber()))
      forms.push_back(std::move(a));
    else if (isMasks(b) && a.asNumber())
      forms.push_back(std::move(b));
    else
      return failed(node, "it chooses between two functions of the position");
  }
  auto made = std::make_shared<FormTensor>();
  made->shape = *shape;
  made->take(std::move(forms));
  return made;
}

/// Row of a table that holds the angles of a step's tokens, for one token: its place is a number.
/// nullopt for other tables.
static std::optional<int64_t> rowOfStep(const FormTensor& places, const FormTensor& table,
                                        int64_t token) {
  if (places.count() == 0 || table.shape.size() != 2 || table.isNumeric())
    return std::nullopt;
  const bool isEach = token < places.count() && places.count() > 1;
  const auto place = places.at(isEach ? token : 0).asNumber();
  if (!place)
    return std::nullopt;
  const double row = *place + (isEach ? 0.0 : static_cast<double>(token));
  if (row < 0 || row >= static_cast<double>(table.shape[0]) || row != std::trunc(row))
    return std::nullopt;
  return static_cast<int64_t>(row);
}

FormEvaluator::Tensor FormEvaluator::rotated(const Node& node) {
  const bool isOnnx = node.op().isOnnx();
  const Value* ids = node.operand(isOnnx ? 3 : 1);
  const FormTensor* x = evaluate(*node.operand(0));
  const FormTensor* cosines = x ? evaluate(*node.operand(isOnnx ? 1 : 2)) : nullptr;
  const FormTensor* sines = cosines ? evaluate(*node.operand(isOnnx ? 2 : 3)) : nullptr;
  const FormTensor* places = sines && ids ? evaluate(*ids) : nullptr;
  if (!sines || (ids && !places))
    return nullptr;
  if (x->shape.size() < 3 || x->shape.size() > 4 || node.floatAttr("scale", 1) != 1 ||
      node.intAttr("is_packed_batching", 0) != 0 || cosines->shape != sines->shape ||
      cosines->shape.empty() || cosines->shape.back() == 0)
    return failed(node, "its attributes or extents are not supported");
  RotaryForms rotary;
  rotary.interleaved = node.intAttr("interleaved", 0) == 1;
  const int64_t pairs = cosines->shape.back();
  const int64_t heads = node.intAttr("num_heads", 0);
  rotary.width = x->shape.size() == 4 ? x->shape[3] : heads > 0 ? x->shape[2] / heads : 2 * pairs;
  const int64_t rows = x->shape.size() == 4 ? x->shape[2] : x->shape[1];
  if (pairs > x->shape.back())
    return failed(node, "its extents are not known");
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t pair = 0; pair < pairs; ++pair) {
      if (!places) {
        if (row * pairs + pair >= cosines->count())
          return failed(node, "its extents are not known");
        rotary.cosines.push_back(cosines->at(row * pairs + pair));
        rotary.sines.push_back(sines->at(row * pairs + pair));
        continue;
      }
      const bool isEach = places->count() == rows;
      // A table of this step's angles, one row for each token.
      if (const auto place = rowOfStep(*places, *cosines, row)) {
        rotary.cosines.push_back(cosines->at(*place * pairs + pair));
        rotary.sines.push_back(sines->at(*place * pairs + pair));
        continue;
      }
      auto line = places->count() == 0 ? std::nullopt : places->at(isEach ? row : 0).asLine();
      if (!line || line->slope != 1 || cosines->shape.size() != 2 || !cosines->isNumeric() ||
          !sines->isNumeric())
        return failed(node, "it looks up angles by something other than a position");
      if (!isEach)
        line->offset += static_cast<double>(row);
      rotary.cosines.push_back(entry(*cosines, 0, pair, *line));
      rotary.sines.push_back(entry(*sines, 0, pair, *line));
    }
  std::string reason;
  Tensor made = rotatedForms(*x, rotary, reason);
  return made ? made : failed(node, reason);
}

} // namespace kvopt::analysis
