// Reading of masks: operators that move elements, as maps from an index to an operand's index.
#include "passes/analysis/mask/mask_reader.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

using Kind = MaskExpression::Kind;

namespace {

bool isOne(const Dim& extent) { return extent.value() == 1; }

} // namespace

ExprRef MaskReader::broadcast(ExprRef index, const Dim& from, const Dim& to) {
  if (isOne(from) || isOne(to))
    return made.number(0);
  if (index->constant() == 0.0 || from.isKnownEqual(to) || from.isKnownDifferent(Dim::fixed(1)))
    return index;
  // An index below the extent is 0 where that is 1.
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

/// Groups of axes with equal products of extents map to each other: within a
/// group through the flat index, which the operand's extents divide.
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

    // All T keys of a mask lie in a constant of N >= 2 elements: a longer T than N would be neither
    // the N elements that are left nor 1, so that the mask would not broadcast.
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
    // A part that holds no such index is not read: nothing is known of it there.
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

} // namespace kvopt::analysis
