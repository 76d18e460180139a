// Reading of masks: operators that move elements, as maps from an index to an operand's index.
#include "passes/analysis/mask_reader.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace kvopt {

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
  enum class Code {
    None,
    Transpose,
    Squeeze,
    Unsqueeze,
    Reshape,
    Expand,
    Tile,
    Slice,
    Gather,
    GatherND,
    Concat,
    Pad,
    ScatterND
  };
  auto code = llvm::StringSwitch<Code>(place.node->op().type())
                  .Case("Transpose", Code::Transpose)
                  .Case("Squeeze", Code::Squeeze)
                  .Case("Unsqueeze", Code::Unsqueeze)
                  .Cases("Reshape", "Flatten", Code::Reshape)
                  .Case("Expand", Code::Expand)
                  .Case("Tile", Code::Tile)
                  .Case("Slice", Code::Slice)
                  .Case("Gather", Code::Gather)
                  .Case("GatherND", Code::GatherND)
                  .Case("Concat", Code::Concat)
                  .Case("Pad", Code::Pad)
                  .Case("ScatterND", Code::ScatterND)
                  .Default(Code::None);
  const Value* data = place.node->operand(0);
  if (code == Code::None || !data || !data->type().hasRank())
    return nullptr;
  switch (code) {
  case Code::Transpose:
    return transpose(place);
  case Code::Squeeze:
    return squeeze(place, false);
  case Code::Unsqueeze:
    return squeeze(place, true);
  case Code::Reshape:
    return reshape(place);
  case Code::Expand:
    return operand(place, 0);
  case Code::Tile:
    return tile(place);
  case Code::Slice:
    return slice(place);
  case Code::Gather:
    return gather(place);
  case Code::GatherND:
    return gatherND(place);
  case Code::Concat:
    return concat(place);
  case Code::Pad:
    return pad(place);
  case Code::ScatterND:
    return scatterND(place);
  case Code::None:
    break;
  }
  return nullptr;
}

ExprRef MaskReader::transpose(const Place& place) {
  const Value& data = *place.node->operand(0);
  unsigned rank = data.type().rank();
  ExprVector index(rank, nullptr);
  auto permutation = place.node->intsAttr("perm");
  if (permutation && permutation->size() != rank)
    return nullptr;
  for (unsigned axis = 0; axis < rank; ++axis) {
    int64_t from = permutation ? (*permutation)[axis] : rank - 1 - axis;
    if (from < 0 || from >= rank || index[static_cast<size_t>(from)])
      return nullptr;
    index[static_cast<size_t>(from)] = place.index[axis];
  }
  return read(data, index);
}

/// Unsqueeze (`insert`) or Squeeze.
ExprRef MaskReader::squeeze(const Place& place, bool insert) {
  const Value& data = *place.node->operand(0);
  const TensorType& longer = insert ? place.value.type() : data.type();
  unsigned rank = longer.rank();
  llvm::SmallVector<bool, 8> isExtra(rank, false);
  std::optional<llvm::SmallVector<int64_t, 8>> axes;
  if (auto attribute = place.node->intsAttr("axes"))
    axes.emplace(attribute->begin(), attribute->end());
  else if (place.node->operand(1))
    axes = constants(place.node->operand(1));
  else if (!insert) {
    axes.emplace();
    for (unsigned axis = 0; axis < rank; ++axis)
      if (isOne(longer.shape()[axis]))
        axes->push_back(axis);
  }
  if (!axes)
    return nullptr;
  for (int64_t axis : *axes) {
    auto normal = normalizedAxis(axis, rank);
    if (!normal)
      return nullptr;
    isExtra[*normal] = true;
  }
  ExprVector index;
  unsigned next = 0;
  for (unsigned axis = 0; axis < rank; ++axis) {
    if (insert && !isExtra[axis] && axis < place.index.size())
      index.push_back(place.index[axis]);
    if (!insert && isExtra[axis])
      index.push_back(made.number(0));
    if (!insert && !isExtra[axis]) {
      if (next == place.index.size())
        return nullptr;
      index.push_back(place.index[next++]);
    }
  }
  return index.size() == data.type().rank() ? read(data, index) : nullptr;
}

llvm::SmallVector<MaskReader::LiveAxis, 4> MaskReader::liveAxes(const TensorType& type) const {
  llvm::SmallVector<LiveAxis, 4> live;
  for (unsigned axis = 0; axis < type.rank(); ++axis)
    if (Dim extent = modelDim(type.shape()[axis]); !isOne(extent))
      live.push_back({axis, extent});
  return live;
}

/// Reshape and Flatten. Groups of axes with equal products of extents map to each other: within a
/// group through the flat index, which the operand's extents divide.
ExprRef MaskReader::reshape(const Place& place) {
  const Value& data = *place.node->operand(0);
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

ExprRef MaskReader::tile(const Place& place) {
  const Value& data = *place.node->operand(0);
  if (data.type().rank() != place.index.size())
    return nullptr;
  ExprVector index;
  for (unsigned axis = 0; axis < data.type().rank(); ++axis) {
    Dim extent = modelDim(data.type().shape()[axis]);
    if (extent.isKnownEqual(modelDim(place.value.type().shape()[axis])))
      index.push_back(place.index[axis]);
    else if (isOne(extent))
      index.push_back(made.number(0));
    else if (extent.isUnknown())
      return nullptr;
    else
      index.push_back(made.remainder(place.index[axis], made.integer(extent), ElementType::Int64));
  }
  return read(data, index);
}

MaskReader::Window MaskReader::windowOf(const Node& node, unsigned axis) {
  const TensorType& type = node.operand(0)->type();
  Window whole{Dim::fixed(0), modelDim(type.shape()[axis]), 1, true};
  Window none{Dim::unknown(), Dim::unknown(), 0, false};
  unsigned rank = type.rank();
  auto positionOf = [&](llvm::ArrayRef<int64_t> axes) -> int64_t {
    for (size_t k = 0; k < axes.size(); ++k)
      if (normalizedAxis(axes[k], rank) == axis)
        return static_cast<int64_t>(k);
    return -1;
  };
  Window window;
  if (auto starts = node.intsAttr("starts")) { // before opset 10
    auto ends = node.intsAttr("ends");
    auto axes = node.intsAttr("axes");
    int64_t position = axes                    ? positionOf(*axes)
                       : axis < starts->size() ? static_cast<int64_t>(axis)
                                               : -1;
    if (position < 0)
      return whole;
    auto at = static_cast<size_t>(position);
    if (!ends || at >= starts->size() || at >= ends->size())
      return none;
    window = {Dim::fixed((*starts)[at]), Dim::fixed((*ends)[at]), 1, false};
  } else {
    const Value* startList = node.operand(1);
    if (!startList || !startList->type().hasRank())
      return none;
    int64_t position = -1;
    if (node.operand(3)) {
      auto axes = constants(node.operand(3));
      if (!axes)
        return none;
      position = positionOf(*axes);
    } else {
      auto count = startList->type().dim(0).value();
      if (!count)
        return none;
      position = axis < *count ? static_cast<int64_t>(axis) : -1;
    }
    if (position < 0)
      return whole;
    auto start = integerAt(startList, position);
    auto end = integerAt(node.operand(2), position);
    auto step = node.operand(4) ? integerAt(node.operand(4), position) : Dim::fixed(1);
    if (!start || !step || !step->value() || *step->value() < 1)
      return none;
    window = {*start, end.value_or(Dim::unknown()), *step->value(), false};
  }
  auto fromEnd = [&](Dim& bound) {
    if (!space().isNonNegative(-bound - Dim::fixed(1)))
      return;
    bound = bound + whole.end;
  };
  fromEnd(window.start);
  fromEnd(window.end);
  // An element exists, so a start within or beyond the extent was not moved; one before 0 was.
  if (!space().isNonNegative(window.start))
    return none;
  return window;
}

ExprRef MaskReader::slice(const Place& place) {
  const Value& data = *place.node->operand(0);
  if (data.type().rank() != place.index.size())
    return nullptr;
  ExprVector index;
  for (unsigned axis = 0; axis < data.type().rank(); ++axis) {
    Window window = windowOf(*place.node, axis);
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

Dim MaskReader::slicedExtent(const Node& node, unsigned axis, unsigned depth) {
  Window window = windowOf(node, axis);
  const Dim extent = extentOf(*node.operand(0), axis, depth + 1);
  if (window.isWhole)
    return extent;
  if (window.step != 1 || window.end.isUnknown() || !extent.value() ||
      !space().isNonNegative(window.end - window.start))
    return Dim::unknown();
  if (!window.end.isKnownLessEqual(extent)) {
    if (!mayAssume)
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
  if (!declared.isUnknown() || !node || !node->op().isOnnx() || depth == maxDepth)
    return declared;
  llvm::StringRef op = node->op().type();
  unsigned rank = value.type().rank();
  auto isSameRank = [&](const Value* operand) {
    return operand && operand->type().hasRank() && operand->type().rank() == rank;
  };
  if (op == "Tile" && isSameRank(node->operand(0))) {
    auto repeats = integerAt(node->operand(1), axis);
    return repeats && isOne(*repeats) ? extentOf(*node->operand(0), axis, depth + 1) : declared;
  }
  if (op == "Expand" && node->operand(1) && node->operand(1)->type().dim(0).value() == rank) {
    auto target = integerAt(node->operand(1), axis);
    return target && target->isKnownEqual(space().extent(IndexVariable::Key)) ? *target : declared;
  }
  if (op == "Slice")
    return isSameRank(node->operand(0)) ? slicedExtent(*node, axis, depth) : declared;
  bool isElementwise = llvm::StringSwitch<bool>(op)
                           .Cases("Where", "And", "Or", "Not", "Cast", "Add", "Sub", "Mul", true)
                           .Cases("Identity", "Neg", "Xor", "Max", "Min", "Div", true)
                           .Cases("Equal", "Less", "LessOrEqual", "Greater", true)
                           .Cases("GreaterOrEqual", "Clip", "Pow", true)
                           .Default(false);
  if (!isElementwise)
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
    // Next to T (or S) any other extent is T (or S), or 1; where T is 1, the only index is 0, and
    // other extents do not matter to who reads there.
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

bool MaskReader::assumptionsHold() const {
  return llvm::all_of(assumed, [&](const Bound& bound) {
    return llvm::any_of(granted, [&](const Bound& grant) {
      return bound.smaller.isKnownLessEqual(grant.smaller) &&
             grant.larger.isKnownLessEqual(bound.larger);
    });
  });
}

/// An index that is read for all b, h, i and j does not leave the extent, or the graph would fail.
void MaskReader::learnFrom(ExprRef index, const Dim& extent) {
  Dim known = modelDim(extent);
  if (shifts != 0 || !index->is(Kind::Integer) || index->variables == noIndices ||
      known.isUnknown() || !space().isNonNegative(index->dim))
    return;
  if (std::optional<Dim> last = space().largest(index->dim))
    made.learnNonNegative(known - *last - Dim::fixed(1));
}

ExprRef MaskReader::gather(const Place& place) {
  const Value& data = *place.node->operand(0);
  const Value* indices = place.node->operand(1);
  unsigned rank = data.type().rank();
  auto axis = normalizedAxis(place.node->intAttr("axis", 0), rank);
  if (!axis || !indices || !indices->type().hasRank())
    return nullptr;
  unsigned indexRank = indices->type().rank();
  if (rank - 1 + indexRank != place.index.size())
    return nullptr;
  ExprRef position = read(*indices, place.index.slice(*axis, indexRank));
  learnFrom(position, data.type().shape()[*axis]);
  ExprVector index(place.index.begin(), place.index.begin() + *axis);
  index.push_back(wrapped(position, data.type().shape()[*axis]));
  llvm::append_range(index, place.index.drop_front(*axis + indexRank));
  return read(data, index);
}

ExprRef MaskReader::gatherND(const Place& place) {
  const Value& data = *place.node->operand(0);
  const Value* indices = place.node->operand(1);
  if (!indices || !indices->type().hasRank() || indices->type().rank() == 0 ||
      place.node->intAttr("batch_dims", 0) != 0)
    return nullptr;
  unsigned outer = indices->type().rank() - 1;
  auto width = indices->type().dim(-1).value();
  unsigned rank = data.type().rank();
  if (!width || *width < 1 || *width > rank || outer > place.index.size() ||
      rank - static_cast<unsigned>(*width) != place.index.size() - outer)
    return nullptr;
  ExprVector at(place.index.begin(), place.index.begin() + outer);
  at.push_back(nullptr);
  ExprVector index;
  for (unsigned axis = 0; axis < *width; ++axis) {
    at.back() = made.number(axis);
    ExprRef position = read(*indices, at);
    learnFrom(position, data.type().shape()[axis]);
    index.push_back(wrapped(position, data.type().shape()[axis]));
  }
  llvm::append_range(index, place.index.drop_front(outer));
  return read(data, index);
}

ExprRef MaskReader::concat(const Place& place) {
  auto axis = normalizedAxis(place.node->intAttr("axis", 0), place.value.type().rank());
  if (!axis || !place.index[*axis]->is(Kind::Integer))
    return nullptr;
  // From the last part to the first: index < end ? part : the parts after it.
  llvm::SmallVector<Dim, 4> starts;
  Dim start = Dim::fixed(0);
  for (const Use& use : place.node->operands()) {
    if (!use.value() || !use.value()->type().hasRank() ||
        use.value()->type().rank() != place.index.size())
      return nullptr;
    starts.push_back(start);
    start = start + modelDim(use.value()->type().shape()[*axis]);
    if (start.isUnknown() && use.operandIndex() + 1 != place.node->operands().size())
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
    ExprRef part = read(*place.node->operand(static_cast<unsigned>(k)), index);
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

/// An update of a whole block, whose indices count up from 0 on every axis.
ExprRef MaskReader::scatterND(const Place& place) {
  const Value& data = *place.node->operand(0);
  const Value* indices = place.node->operand(1);
  const Value* updates = place.node->operand(2);
  unsigned rank = data.type().rank();
  if (!indices || !updates || !indices->type().hasRank() || !updates->type().hasRank() ||
      place.node->stringAttr("reduction", "none") != "none")
    return nullptr;
  unsigned outer = updates->type().rank();
  if (indices->type().rank() != outer + 1 || indices->type().dim(-1).value() != rank ||
      outer != rank)
    return nullptr;
  // The update at [i0, i1, …] goes to [i0, i1, …]; asked at the place's own index.
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

/// Whether the last axis of `indices` at position `axis` holds the index on `axis` itself.
bool MaskReader::countsUp(const Value& indices, unsigned axis, unsigned rank) {
  ExprVector at;
  for (unsigned k = 0; k < rank; ++k)
    at.push_back(made.integer(Dim::symbol("\x01"
                                          "at" +
                                          std::to_string(k))));
  at.push_back(made.number(axis));
  // An axis of one element is at 0.
  ExprRef own = isOne(modelDim(indices.type().shape()[axis])) ? made.number(0) : at[axis];
  ++shifts;
  bool isOwn = read(indices, at) == own;
  --shifts;
  return isOwn;
}

} // namespace kvopt
