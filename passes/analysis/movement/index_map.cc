// Composition of data movements, and what the composed map is: division of mixed-radix forms.
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
  // A factor occurs several times in one form only after overlapping movements; those are refused.
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
  // Extents of one look alike; they stay in place where they can.
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
  bool isOver = false; // the first kind of factors
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

} // namespace kvopt::analysis
