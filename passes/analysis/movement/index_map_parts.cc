// Index maps of a slice of extent one: what depends on its index alone need not be a closed form.
#include "passes/analysis/movement/index_map.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

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
