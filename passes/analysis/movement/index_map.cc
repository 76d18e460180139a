// Composition of data movements, and properties of the composed map: division of mixed-radix forms.
#include "passes/analysis/movement/index_map.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

IndexMap IndexMap::identity(llvm::ArrayRef<Dim> shape) {
  IndexMap map;
  map.targetShape.assign(shape.begin(), shape.end());
  map.setSource(shape);
  for (unsigned axis = 0; axis < shape.size(); ++axis) {
    map.factors.push_back(shape[axis]);
    map.axes.push_back({axis});
    Coordinate coordinate;
    coordinate.terms.push_back({axis, Dim::fixed(1)});
    map.coordinates.push_back(std::move(coordinate));
  }
  return map;
}

void IndexMap::split(unsigned factor, const Dim& outer, const Dim& inner) {
  auto outside = static_cast<unsigned>(factors.size());
  factors.push_back(outer);
  factors[factor] = inner;
  for (auto& axis : axes)
    if (auto* place = llvm::find(axis, factor); place != axis.end())
      axis.insert(place, outside);
  for (Coordinate& coordinate : coordinates)
    for (size_t i = 0, count = coordinate.terms.size(); i < count; ++i)
      if (coordinate.terms[i].factor == factor)
        coordinate.terms.push_back({outside, coordinate.terms[i].stride * inner});
}

IndexMap::Division IndexMap::divide(const Coordinate& form, const Dim& divisor,
                                    Coordinate& quotient, Coordinate& remainder) {
  if (divisor.isUnknown())
    return isZero(form) ? Division::Done : Division::Unproven;
  if (divisor.value() == 1) {
    quotient = form;
    return Division::Done;
  }
  if (divisor.value() == 0)
    return Division::Unproven;
  const Dim one = Dim::fixed(1);
  Dim greatest = Dim::fixed(0);
  for (const Term& term : form.terms) {
    if (isUnit(term.factor))
      continue;
    if (std::optional<Dim> stride = term.stride.dividedBy(divisor)) {
      quotient.terms.push_back({term.factor, *stride});
      continue;
    }
    const Dim extent = factors[term.factor];
    if (!(term.stride * extent).isKnownLessEqual(divisor))
      if (std::optional<Dim> inner = divisor.dividedBy(term.stride))
        if (std::optional<Dim> outer = extent.dividedBy(*inner)) {
          if (factors.size() == maxFactors)
            return Division::Unproven;
          split(term.factor, *outer, *inner);
          return Division::Split;
        }
    remainder.terms.push_back(term);
    greatest = greatest + term.stride * (extent - one);
  }
  std::optional<int64_t> offset = form.offset.value();
  std::optional<int64_t> fixedDivisor = divisor.value();
  if (std::optional<Dim> whole = form.offset.dividedBy(divisor)) {
    quotient.offset = *whole;
  } else if (offset && fixedDivisor && *offset >= 0 && *fixedDivisor > 0) {
    quotient.offset = Dim::fixed(*offset / *fixedDivisor);
    remainder.offset = Dim::fixed(*offset % *fixedDivisor);
  } else if (form.offset.isKnownNonNegative()) {
    remainder.offset = form.offset;
  } else {
    return Division::Unproven;
  }
  return (greatest + remainder.offset).isKnownLess(divisor) ? Division::Done : Division::Unproven;
}

bool IndexMap::reduceModulo(unsigned axis, const Dim& divisor) {
  for (;;) {
    Coordinate quotient, remainder;
    Division division = divide(coordinates[axis], divisor, quotient, remainder);
    if (division == Division::Unproven)
      return false;
    if (division == Division::Split)
      continue;
    coordinates[axis] = std::move(remainder);
    return true;
  }
}

bool IndexMap::reduceQuotient(unsigned axis, const Dim& divisor) {
  for (;;) {
    Coordinate quotient, remainder;
    Division division = divide(coordinates[axis], divisor, quotient, remainder);
    if (division == Division::Unproven)
      return false;
    if (division == Division::Split)
      continue;
    coordinates[axis] = std::move(quotient);
    return true;
  }
}

IndexMap::Coordinate IndexMap::scaled(const Coordinate& form, const Dim& by) {
  Coordinate result;
  result.offset = form.offset.value() == 0 ? form.offset : form.offset * by;
  for (const Term& term : form.terms)
    result.terms.push_back({term.factor, term.stride * by});
  return result;
}

void IndexMap::add(Coordinate& sum, const Coordinate& form) {
  sum.offset = sum.offset + form.offset;
  sum.terms.append(form.terms.begin(), form.terms.end());
}

std::optional<IndexMap::Coordinate> IndexMap::linear(llvm::ArrayRef<Coordinate> coordinates,
                                                     llvm::ArrayRef<Dim> shape) {
  Coordinate position;
  Dim stride = Dim::fixed(1);
  for (size_t axis = shape.size(); axis-- > 0;) {
    const Coordinate& coordinate = coordinates[axis];
    bool isNothing = coordinate.terms.empty() && coordinate.offset.value() == 0;
    if (!isNothing && stride.isUnknown())
      return std::nullopt;
    if (!isNothing)
      add(position, scaled(coordinate, stride));
    stride = stride * shape[axis];
  }
  return position;
}

bool IndexMap::throughReshape(llvm::ArrayRef<Dim> shape) {
  if (shape.size() == sourceShape.size() &&
      llvm::all_of(llvm::zip(shape, sourceShape), [](const auto& pair) {
        return std::get<0>(pair).isKnownEqual(std::get<1>(pair));
      }))
    return true;
  IndexMap before = *this;
  for (;;) {
    std::optional<Coordinate> rest = linear(coordinates, sourceShape);
    bool isSplit = false;
    Coordinates regrouped(shape.size());
    for (size_t axis = shape.size(); rest && !isSplit && axis-- > 1;) {
      Coordinate quotient;
      Division division = divide(*rest, shape[axis], quotient, regrouped[axis]);
      if (division == Division::Unproven)
        rest = std::nullopt;
      else
        rest = std::move(quotient);
      isSplit = division == Division::Split;
    }
    if (!rest) {
      *this = std::move(before);
      return false;
    }
    if (isSplit)
      continue;
    if (!shape.empty())
      regrouped[0] = std::move(*rest);
    coordinates = std::move(regrouped);
    setSource(shape);
    keepsExtents = false;
    return true;
  }
}

bool IndexMap::isZero(const Coordinate& form) const {
  return form.offset.value() == 0 &&
         llvm::all_of(form.terms, [&](const Term& term) { return isUnit(term.factor); });
}

bool IndexMap::isSame(const Coordinate& a, const Coordinate& b) const {
  if (!a.offset.isKnownEqual(b.offset))
    return false;
  // A factor occurs several times in one form only after overlapping movements, which are refused.
  auto isCovered = [&](const Coordinate& x, const Coordinate& y) {
    return llvm::all_of(x.terms, [&](const Term& term) {
      if (isUnit(term.factor))
        return true;
      unsigned matches = 0, occurrences = 0;
      for (const Term& other : y.terms)
        if (other.factor == term.factor) {
          ++occurrences;
          matches += other.stride.isKnownEqual(term.stride) ? 1 : 0;
        }
      return occurrences == 1 && matches == 1;
    });
  };
  return isCovered(a, b) && isCovered(b, a);
}

std::optional<IndexMap::Coordinate> IndexMap::formOf(llvm::ArrayRef<unsigned> list) const {
  Coordinate form;
  Dim stride = Dim::fixed(1);
  for (unsigned factor : llvm::reverse(list)) {
    if (isUnit(factor))
      continue;
    if (stride.isUnknown())
      return std::nullopt;
    form.terms.push_back({factor, stride});
    stride = stride * factors[factor];
  }
  return form;
}

std::optional<llvm::SmallVector<unsigned, 4>>
IndexMap::matchAxes(llvm::ArrayRef<Coordinate> forms, llvm::ArrayRef<Dim> extents) const {
  if (forms.size() != coordinates.size())
    return std::nullopt;
  auto fits = [&](size_t source, size_t target) {
    bool isSameExtent = sourceShape[source].isKnownEqual(extents[target]) ||
                        (keepsExtents && !forms[target].terms.empty());
    return isSameExtent && isSame(coordinates[source], forms[target]);
  };
  constexpr unsigned none = ~0u;
  llvm::SmallVector<unsigned, 4> sourceOf(forms.size(), none);
  llvm::SmallVector<bool, 4> isTaken(forms.size(), false);
  // Extents of one look alike; they stay in place if possible.
  for (size_t axis = 0; axis < forms.size(); ++axis)
    if (fits(axis, axis)) {
      sourceOf[axis] = static_cast<unsigned>(axis);
      isTaken[axis] = true;
    }
  for (size_t target = 0; target < forms.size(); ++target)
    for (size_t source = 0; source < forms.size() && sourceOf[target] == none; ++source)
      if (!isTaken[source] && fits(source, target)) {
        sourceOf[target] = static_cast<unsigned>(source);
        isTaken[source] = true;
      }
  if (llvm::is_contained(sourceOf, none))
    return std::nullopt;
  return sourceOf;
}

std::optional<llvm::SmallVector<unsigned, 4>> IndexMap::transposition() const {
  Coordinates forms;
  for (const auto& axis : axes) {
    std::optional<Coordinate> form = formOf(axis);
    if (!form)
      return std::nullopt;
    forms.push_back(std::move(*form));
  }
  return matchAxes(forms, targetShape);
}

bool IndexMap::isIdentity() const {
  std::optional<llvm::SmallVector<unsigned, 4>> perm = transposition();
  if (!perm)
    return false;
  for (unsigned axis = 0; axis < perm->size(); ++axis)
    if ((*perm)[axis] != axis)
      return false;
  return true;
}

bool IndexMap::isReshape() const {
  std::optional<Repetition> found = repetitionOf(std::nullopt, Repeat::Entries);
  return found && found->byReshape;
}

std::optional<IndexMap::Repetition> IndexMap::repetition(unsigned axis, Repeat order) const {
  return repetitionOf(axis, order);
}

std::optional<llvm::SmallVector<unsigned, 4>> IndexMap::readFactors(llvm::ArrayRef<unsigned> axis,
                                                                    const std::vector<bool>& isRead,
                                                                    Repeat order) {
  llvm::SmallVector<unsigned, 4> read;
  bool isOver = false; // the first kind of factors has ended
  for (unsigned factor : axis) {
    bool isFirstKind = isRead[factor] == (order == Repeat::Entries);
    if (isFirstKind && isOver)
      return std::nullopt;
    isOver |= !isFirstKind;
    if (isRead[factor])
      read.push_back(factor);
  }
  return read;
}

std::optional<IndexMap::Repetition> IndexMap::repetitionOf(std::optional<unsigned> repeatedAxis,
                                                           Repeat order) const {
  std::vector<bool> isRead(factors.size(), false);
  for (const Coordinate& coordinate : coordinates)
    for (const Term& term : coordinate.terms)
      isRead[term.factor] = true;

  Repetition found;
  Coordinates forms;
  for (unsigned axis = 0; axis < axes.size(); ++axis) {
    llvm::SmallVector<unsigned, 4> list;
    llvm::copy_if(axes[axis], std::back_inserter(list),
                  [&](unsigned factor) { return !isUnit(factor); });
    auto read = readFactors(list, isRead, order);
    if (!read || (axis != repeatedAxis && read->size() != list.size()))
      return std::nullopt;
    Dim extent = targetShape[axis];
    if (read->size() != list.size()) {
      extent = Dim::fixed(1);
      for (unsigned factor : *read)
        extent = extent * factors[factor];
    }
    std::optional<Coordinate> form = formOf(*read);
    if (!form)
      return std::nullopt;
    found.shape.push_back(std::move(extent));
    forms.push_back(std::move(*form));
  }

  found.perm = matchAxes(forms, found.shape);
  std::optional<Coordinate> before = linear(coordinates, sourceShape);
  std::optional<Coordinate> after = linear(forms, found.shape);
  Dim elements = Dim::fixed(1), read = Dim::fixed(1);
  for (const Dim& extent : sourceShape)
    elements = elements * extent;
  for (const Dim& extent : found.shape)
    read = read * extent;
  found.byReshape = before && after && elements.isKnownEqual(read) && isSame(*before, *after);
  if (!found.perm && !found.byReshape)
    return std::nullopt;
  return found;
}

std::optional<llvm::SmallVector<int64_t, 4>> IndexMap::evaluate(llvm::ArrayRef<int64_t> index,
                                                                SymbolLookup lookup) const {
  assert(index.size() == axes.size());
  std::vector<int64_t> digits(factors.size(), 0);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    int64_t rest = index[axis];
    for (size_t i = axes[axis].size(); i-- > 0;) {
      unsigned factor = axes[axis][i];
      if (i == 0) {
        digits[factor] = rest;
        continue;
      }
      std::optional<int64_t> extent = factors[factor].evaluate(lookup);
      if (!extent || *extent <= 0)
        return std::nullopt;
      digits[factor] = rest % *extent;
      rest /= *extent;
    }
  }
  llvm::SmallVector<int64_t, 4> result;
  for (const Coordinate& coordinate : coordinates) {
    std::optional<int64_t> sum = coordinate.offset.evaluate(lookup);
    for (const Term& term : coordinate.terms) {
      std::optional<int64_t> stride = term.stride.evaluate(lookup);
      int64_t part = 0, total = 0;
      if (!sum || !stride || __builtin_mul_overflow(*stride, digits[term.factor], &part) ||
          __builtin_add_overflow(*sum, part, &total))
        return std::nullopt;
      sum = total;
    }
    if (!sum)
      return std::nullopt;
    result.push_back(*sum);
  }
  return result;
}

std::vector<MovementStop> movementChain(Value& end, unsigned limit) {
  std::vector<MovementStop> stops;
  if (!end.type().hasRank())
    return stops;
  stops.push_back({&end, IndexMap::identity(end.type().shape()), 0});
  for (unsigned passed = 1; passed <= limit; ++passed) {
    Value& value = *stops.back().value;
    Node* node = value.producer();
    Value* operand = node ? movedOperand(*node) : nullptr;
    if (!operand)
      break;
    IndexMap map = stops.back().map;
    if (!map.through(*node, value.resultIndex()))
      break;
    stops.push_back({operand, std::move(map), passed});
  }
  return stops;
}

// Mapping from the indices of a result to those of the data, for each kind of movement.

namespace {

constexpr int64_t maxGatherIndices = 4096;

using Integers = llvm::SmallVector<int64_t, 8>;

std::optional<Integers> fixedIntegers(const Value* value) {
  if (!value)
    return std::nullopt;
  if (const TensorData* constant = value->constant()) {
    auto elements = integerValues(*constant, maxGatherIndices);
    return elements ? std::optional<Integers>(Integers(elements->begin(), elements->end()))
                    : std::nullopt;
  }
  auto known = value->knownIntegers();
  if (!known || known->size() > maxGatherIndices)
    return std::nullopt;
  Integers list;
  for (const Dim& element : *known) {
    std::optional<int64_t> number = element.value();
    if (!number)
      return std::nullopt;
    list.push_back(*number);
  }
  return list;
}

/// entry[i] = first + step * ((i / run) % period).
struct Table {
  int64_t first, step, run, period;
};

std::optional<Table> tableOf(llvm::ArrayRef<int64_t> entries) {
  if (entries.empty())
    return std::nullopt;
  size_t run = 1;
  while (run < entries.size() && entries[run] == entries[0])
    ++run;
  if (entries.size() % run != 0)
    return std::nullopt;
  size_t count = entries.size() / run;
  int64_t step = 0;
  if (count > 1 && __builtin_sub_overflow(entries[run], entries[0], &step))
    return std::nullopt;
  if (count > 1 && step <= 0)
    return std::nullopt;
  size_t period = 1;
  while (period < count && entries[period * run] > entries[(period - 1) * run])
    ++period;
  if (count % period != 0)
    return std::nullopt;
  // The entries ascend within a period, so no product below exceeds the last of them.
  for (size_t i = 0; i < entries.size(); ++i) {
    int64_t offset = 0, expected = 0;
    if (__builtin_mul_overflow(step, static_cast<int64_t>((i / run) % period), &offset) ||
        __builtin_add_overflow(entries[0], offset, &expected) || entries[i] != expected)
      return std::nullopt;
  }
  return Table{entries[0], step, static_cast<int64_t>(run), static_cast<int64_t>(period)};
}

/// Entries of a Gather along an axis of that extent, counted from its start.
std::optional<Integers> entriesOf(const Value* indices, const Dim& extent) {
  std::optional<Integers> entries = fixedIntegers(indices);
  if (!entries)
    return std::nullopt;
  for (int64_t& entry : *entries)
    if (entry < 0) {
      std::optional<int64_t> whole = extent.value();
      if (!whole || entry < -*whole)
        return std::nullopt;
      entry += *whole;
    }
  return entries;
}

/// The list whose elements a column of indices holds in order; null if there is none.
const Value* listOfColumn(const Value& column) {
  const Node* node = column.producer();
  if (!node)
    return nullptr;
  const std::optional<MovementKind> kind = movementKind(*node);
  bool keepsOrder = kind == MovementKind::InsertAxes || kind == MovementKind::Reshape ||
                    kind == MovementKind::Permutation;
  return keepsOrder ? movedOperand(*node) : nullptr;
}

/// Whether every axis of the result is a whole axis of the data, or has extent one. Then axes are
/// equal even if their extents are unknown.
bool keepsWholeAxes(MovementKind kind) {
  switch (kind) {
  case MovementKind::Same:
  case MovementKind::Convert:
  case MovementKind::Permutation:
  case MovementKind::Reshape: // sets the flag itself
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes:
    return true;
  case MovementKind::Broadcast:
  case MovementKind::Repeat:
  case MovementKind::Slice:
  case MovementKind::Gather:
  case MovementKind::PointGather:
  case MovementKind::Concat:
    return false;
  }
  return false;
}

} // namespace

bool IndexMap::throughPermutation(const Movement& movement) {
  if (!movement.axes || movement.axes->size() != coordinates.size())
    return false;
  Coordinates before(coordinates.size());
  for (size_t i = 0; i < coordinates.size(); ++i)
    before[(*movement.axes)[i]] = coordinates[i];
  coordinates = std::move(before);
  return true;
}

bool IndexMap::throughInserted(const Movement& movement, llvm::ArrayRef<Dim> shape) {
  if (!movement.axes)
    return throughReshape(shape);
  Coordinates before;
  for (unsigned axis = 0; axis < coordinates.size(); ++axis)
    if (!llvm::is_contained(*movement.axes, axis))
      before.push_back(coordinates[axis]);
  coordinates = std::move(before);
  return coordinates.size() == shape.size();
}

bool IndexMap::throughRemoved(const Movement& movement, llvm::ArrayRef<Dim> shape) {
  if (!movement.axes)
    return throughReshape(shape);
  if (coordinates.size() + movement.axes->size() != shape.size())
    return false;
  for (unsigned axis : *movement.axes)
    coordinates.insert(coordinates.begin() + axis, Coordinate());
  return true;
}

bool IndexMap::throughBroadcast(llvm::ArrayRef<Dim> shape) {
  if (shape.size() > coordinates.size())
    return false;
  size_t added = coordinates.size() - shape.size();
  const Dim one = Dim::fixed(1);
  Coordinates before;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis].isKnownEqual(one))
      before.emplace_back();
    else if (shape[axis].isKnownEqual(sourceShape[axis + added]) ||
             shape[axis].isKnownDifferent(one))
      before.push_back(coordinates[axis + added]);
    else
      return false;
  }
  coordinates = std::move(before);
  return true;
}

bool IndexMap::throughRepeat(const Movement& movement, llvm::ArrayRef<Dim> shape) {
  if (shape.size() != coordinates.size() || movement.counts.size() != shape.size())
    return false;
  for (unsigned axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis].value() == 1)
      coordinates[axis] = Coordinate();
    else if (movement.counts[axis].known.value() != 1 && !reduceModulo(axis, shape[axis]))
      return false;
  }
  return true;
}

bool IndexMap::throughConcat(const Movement& movement, const Node& node,
                             llvm::ArrayRef<Dim> shape) {
  auto parts = node.operands().drop_front(movement.data);
  for (const Use& use : parts)
    if (use.value() != parts.front().value())
      return false;
  std::optional<unsigned> axis = movement.axis();
  if (!axis || coordinates.size() != shape.size())
    return false;
  return parts.size() == 1 || reduceModulo(*axis, shape[*axis]);
}

bool IndexMap::throughSlice(const Movement& movement, llvm::ArrayRef<Dim> shape) {
  if (!movement.axes || coordinates.size() != shape.size())
    return false;
  for (size_t i = 0; i < movement.ranges.size(); ++i) {
    const MovementRange& range = movement.ranges[i];
    const unsigned axis = (*movement.axes)[i];
    std::optional<int64_t> step = range.step.known.value();
    if (!step || *step == 0)
      return false;
    if (*step < 0) {
      if (!throughReversed(axis, range, shape[axis]))
        return false;
      continue;
    }
    // A start after the end yields an empty range; one before the start would be clamped.
    Dim start = range.start.known;
    if (start.value() && *start.value() < 0)
      start = start + shape[axis];
    if (!start.isKnownNonNegative())
      return false;
    Coordinate moved = scaled(coordinates[axis], Dim::fixed(*step));
    moved.offset = moved.offset + start;
    coordinates[axis] = std::move(moved);
  }
  return true;
}

bool IndexMap::throughGather(const Movement& movement, const Node& node,
                             llvm::ArrayRef<Dim> shape) {
  const Value* indices = node.operand(movement.indices);
  if (!movement.axis() || !indices || !indices->type().hasRank() || indices->type().rank() > 1 ||
      coordinates.size() != shape.size() - 1 + indices->type().rank())
    return false;
  const unsigned axis = *movement.axis();
  std::optional<Integers> entries = entriesOf(indices, shape[axis]);
  if (!entries)
    return false;
  if (indices->type().rank() == 0) {
    if (entries->size() != 1)
      return false;
    Coordinate chosen;
    chosen.offset = Dim::fixed(entries->front());
    coordinates.insert(coordinates.begin() + axis, std::move(chosen));
    return true;
  }
  return throughEntries(axis, *entries);
}

bool IndexMap::throughPoints(const Movement& movement, const Node& node,
                             llvm::ArrayRef<Dim> shape) {
  const Value* indices = node.operand(movement.indices);
  if (!movement.axis() || indices->type().rank() != 2 || coordinates.size() != shape.size())
    return false;
  const unsigned axis = *movement.axis();
  if (const Value* list = listOfColumn(*indices))
    indices = list;
  std::optional<Integers> entries = entriesOf(indices, shape[axis]);
  return entries && throughEntries(axis, *entries);
}

bool IndexMap::throughEntries(unsigned axis, llvm::ArrayRef<int64_t> entries) {
  if (std::optional<int64_t> index = fixedIndex(coordinates[axis])) {
    if (*index < 0 || *index >= static_cast<int64_t>(entries.size()))
      return false;
    coordinates[axis] = Coordinate();
    coordinates[axis].offset = Dim::fixed(entries[static_cast<size_t>(*index)]);
    return true;
  }
  std::optional<Table> table = tableOf(entries);
  if (!table)
    return false;
  if (!reduceQuotient(axis, Dim::fixed(table->run)))
    return false;
  if (!reduceModulo(axis, Dim::fixed(table->period)))
    return false;
  Coordinate moved = scaled(coordinates[axis], Dim::fixed(table->step));
  moved.offset = moved.offset + Dim::fixed(table->first);
  coordinates[axis] = std::move(moved);
  return true;
}

bool IndexMap::throughAny(const Movement& movement, const Value& result) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(movement.data)->type();
  llvm::ArrayRef<Dim> shape = data.shape();
  keepsExtents &= keepsWholeAxes(movement.kind);
  switch (movement.kind) {
  case MovementKind::Same:
    return true;
  case MovementKind::Convert:
    return data.elementType() != ElementType::Undefined &&
           data.elementType() == result.type().elementType();
  case MovementKind::Permutation:
    return throughPermutation(movement);
  case MovementKind::Reshape:
    return throughReshape(shape);
  case MovementKind::InsertAxes:
    return throughInserted(movement, shape);
  case MovementKind::RemoveAxes:
    return throughRemoved(movement, shape);
  case MovementKind::Broadcast:
    return throughBroadcast(shape);
  case MovementKind::Repeat:
    return throughRepeat(movement, shape);
  case MovementKind::Slice:
    return throughSlice(movement, shape);
  case MovementKind::Gather:
    return throughGather(movement, node, shape);
  case MovementKind::PointGather:
    return throughPoints(movement, node, shape);
  case MovementKind::Concat:
    return throughConcat(movement, node, shape);
  }
  return false;
}

bool IndexMap::through(const Node& node, unsigned result) {
  std::optional<Movement> movement = movementOf(node.result(result));
  const Value* operand = movement ? node.operand(movement->data) : nullptr;
  if (!operand || !operand->type().hasRank() ||
      sourceShape.size() != node.result(result).type().rank())
    return false;
  IndexMap before = *this;
  if (!throughAny(*movement, node.result(result))) {
    *this = std::move(before);
    return false;
  }
  setSource(operand->type().shape());
  assert(coordinates.size() == sourceShape.size());
  return true;
}

// Slices of extent one: offsets that depend on the index alone need not have a closed form.

IndexMap IndexMap::ofPart(llvm::ArrayRef<Dim> shape, unsigned axis, int64_t index) {
  IndexMap map = identity(shape);
  map.targetShape[axis] = map.factors[axis] = Dim::fixed(1);
  map.coordinates[axis] = Coordinate();
  map.coordinates[axis].offset = Dim::fixed(index);
  return map;
}

std::optional<int64_t> IndexMap::fixedIndex(const Coordinate& form) const {
  bool isFixed = llvm::all_of(form.terms, [&](const Term& term) { return isUnit(term.factor); });
  return isFixed ? form.offset.value() : std::nullopt;
}

bool IndexMap::throughReversed(unsigned axis, const MovementRange& range, const Dim& extent) {
  std::optional<int64_t> index = fixedIndex(coordinates[axis]);
  std::optional<int64_t> first = range.start.known.value(), whole = extent.value();
  if (!index || !first || !whole || *whole <= 0)
    return false;
  int64_t back = 0, at = 0;
  if (__builtin_mul_overflow(*range.step.known.value(), *index, &back) ||
      __builtin_add_overflow(*first, back, &at) || at < 0 || at >= *whole)
    return false;
  coordinates[axis] = Coordinate();
  coordinates[axis].offset = Dim::fixed(at);
  return true;
}

std::optional<unsigned> IndexMap::throughPartOf(const Node& concat) {
  if (movementKind(concat) != MovementKind::Concat ||
      sourceShape.size() != concat.result().type().rank())
    return std::nullopt;
  const Movement movement = *movementOf(concat.result());
  auto rank = static_cast<unsigned>(sourceShape.size());
  std::optional<unsigned> axis = movement.axis();
  std::optional<int64_t> index = axis ? fixedIndex(coordinates[*axis]) : std::nullopt;
  if (!index)
    return std::nullopt;
  for (unsigned operand = movement.data; operand < concat.operands().size(); ++operand) {
    const Value* part = concat.operand(operand);
    if (!part || !part->type().hasRank() || part->type().rank() != rank)
      return std::nullopt;
    std::optional<int64_t> extent = part->type().dim(*axis).value();
    if (!extent || *index < 0)
      return std::nullopt;
    if (*index < *extent) {
      coordinates[*axis] = Coordinate();
      coordinates[*axis].offset = Dim::fixed(*index);
      setSource(part->type().shape());
      return operand;
    }
    *index -= *extent;
  }
  return std::nullopt;
}

std::optional<IndexMap::Part> IndexMap::part(unsigned axis) const {
  if (axes.size() != coordinates.size() || targetShape[axis].value() != 1)
    return std::nullopt;
  Coordinates forms;
  for (const auto& list : axes) {
    std::optional<Coordinate> form = formOf(list);
    if (!form)
      return std::nullopt;
    forms.push_back(std::move(*form));
  }
  for (unsigned source = 0; source < coordinates.size(); ++source) {
    std::optional<int64_t> index = fixedIndex(coordinates[source]);
    if (!index)
      continue;
    Coordinates wanted = forms;
    llvm::SmallVector<Dim, 4> extents = targetShape;
    wanted[axis] = coordinates[source];
    extents[axis] = sourceShape[source];
    auto perm = matchAxes(wanted, extents);
    if (perm && (*perm)[axis] == source)
      return Part{std::move(*perm), *index};
  }
  return std::nullopt;
}

} // namespace kvopt::analysis
