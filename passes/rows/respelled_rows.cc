// Conversion of evaluated elements to factors of axes.
#include "passes/rows/respelled_rows.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rows {
using namespace analysis;
using namespace ir;

namespace {

/// One factor at one point.
struct FactorAtPoint {
  unsigned axis = 0;
  bool isPosition = false;
  int64_t pastExtent = 1, freshExtent = 1;
  int64_t pastStride = 0, freshStride = 0;
};

/// The part of a source's axis that is read.
struct PartAtPoint {
  int64_t whole = 1;
  int64_t start = 0;
  int64_t blocks = 0; ///< see SourcePart
  int axis = -1;      ///< axis of the source that ends where the part's does; -1: none
  int64_t unit = 1;   ///< number of indices of that axis per index of the part
};

/// All factors at one point, and their order in the sources.
struct FactorsAtPoint {
  std::vector<FactorAtPoint> list;
  std::vector<PartAtPoint> parts; ///< parts of the new rows, without a past
  std::vector<unsigned> orderOfPast, orderOfFresh;
  unsigned sequenceAxis = 0;
  int64_t skipped = 0; ///< number of rows at the start of the past that are not read
};

/// The axis of a tensor that, together with all later axes, has `end` elements, and whose stride
/// divides `unit`; -1 if there is none.
int axisEndingAt(llvm::ArrayRef<int64_t> extents, int64_t end, int64_t unit) {
  const Extents strides = rowMajorStrides(extents);
  for (size_t axis = 0; axis < extents.size(); ++axis)
    if (strides[axis] * extents[axis] == end && unit % strides[axis] == 0 && extents[axis] > 1)
      return static_cast<int>(axis);
  return -1;
}

/// Factors that are not repeats, by falling strides, if they cover a tensor of `count` elements
/// from its first to its last. With `parts` they may leave out elements on either side along an
/// axis; the part of each factor's axis that is read is stored there.
std::optional<std::vector<unsigned>> coveringOrder(const std::vector<FactorAtPoint>& factors,
                                                   bool ofPast, int64_t offset,
                                                   llvm::ArrayRef<int64_t> source,
                                                   std::vector<PartAtPoint>* parts = nullptr) {
  auto stride = [&](unsigned i) { return ofPast ? factors[i].pastStride : factors[i].freshStride; };
  auto extent = [&](unsigned i) { return ofPast ? factors[i].pastExtent : factors[i].freshExtent; };
  std::vector<unsigned> order;
  for (unsigned i = 0; i < factors.size(); ++i)
    if (factors[i].isPosition || stride(i) != 0)
      order.push_back(i);
  llvm::stable_sort(order, [&](unsigned a, unsigned b) { return stride(a) > stride(b); });
  std::vector<PartAtPoint> read;
  for (unsigned i : order)
    read.push_back({extent(i)});
  // The next larger stride determines the extent of the axis that a stride belongs to.
  int64_t next = 1, rest = offset;
  std::optional<size_t> inner;
  auto widen = [&](int64_t outerStride) {
    if (outerStride == next)
      return true;
    if (!parts || !inner)
      return false;
    PartAtPoint& part = read[*inner];
    const int64_t unit = stride(order[*inner]);
    if (outerStride % unit != 0)
      return false;
    part.start = rest % outerStride / unit;
    const int64_t taken = std::exchange(part.whole, outerStride / unit);
    rest -= part.start * unit;
    part.axis = axisEndingAt(source, outerStride, unit);
    if (part.axis != -1)
      part.unit = unit / rowMajorStrides(source)[static_cast<size_t>(part.axis)];
    const int before = axisEndingAt(source, outerStride, next);
    if (part.axis == -1 && before != -1 && part.start % taken == 0 &&
        rowMajorStrides(source)[static_cast<size_t>(before)] == next)
      part = {taken, part.start / taken, part.whole / taken, before};
    return part.blocks != 0 || part.start + taken <= part.whole;
  };
  for (size_t at = order.size(); at-- > 0;) {
    if (extent(order[at]) == 1)
      continue;
    if (!widen(stride(order[at])))
      return std::nullopt;
    next = stride(order[at]) * extent(order[at]);
    inner = at;
  }
  if (!widen(countOf(source).value_or(0)) || rest != 0)
    return std::nullopt;
  if (parts)
    *parts = std::move(read);
  return order;
}

std::optional<FactorsAtPoint> factorsOf(CachedRows rows) {
  FactorsAtPoint result;
  const bool isJoined = rows.past && rows.fresh;
  const bool isOverwritten = isJoined && !rows.isAppended();
  for (unsigned axis = 0; axis < rows.extents.size(); ++axis) {
    if (isJoined && axis == rows.axis) {
      auto& past = rows.ofPast.axes[axis];
      auto& fresh = rows.ofFresh.axes[axis];
      if (past.size() > 1 || fresh.size() > 1)
        return std::nullopt;
      FactorAtPoint position{axis, true};
      position.pastExtent = isOverwritten ? rows.extents[axis] : rows.first;
      position.pastStride = past.empty() ? 0 : past.front().stride;
      if (position.pastStride > 0 && rows.ofPast.offset % position.pastStride == 0 &&
          rows.isAppended()) {
        result.skipped = rows.ofPast.offset / position.pastStride;
        position.pastExtent += result.skipped;
        rows.ofPast.offset = 0;
      }
      position.freshExtent = rows.count;
      position.freshStride = fresh.empty() ? 0 : fresh.front().stride;
      result.list.push_back(position);
      continue;
    }
    auto past = rows.past ? rows.ofPast.axes[axis] : rows.ofFresh.axes[axis];
    auto fresh = rows.fresh ? rows.ofFresh.axes[axis] : past;
    if (!cutAlike(past, fresh))
      return std::nullopt;
    for (auto [ofPast, ofFresh] : llvm::zip(past, fresh)) {
      if ((ofPast.stride == 0) != (ofFresh.stride == 0))
        return std::nullopt;
      result.list.push_back(
          {axis, false, ofPast.extent, ofFresh.extent, ofPast.stride, ofFresh.stride});
    }
  }
  if (rows.past) {
    auto order = coveringOrder(result.list, true, rows.ofPast.offset, rows.pastExtents);
    if (!order)
      return std::nullopt;
    result.orderOfPast = std::move(*order);
  }
  if (rows.fresh || !rows.past) {
    auto order = coveringOrder(result.list, false, rows.ofFresh.offset, rows.freshExtents,
                               rows.past ? nullptr : &result.parts);
    if (!order)
      return std::nullopt;
    result.orderOfFresh = std::move(*order);
  }
  if (isJoined) {
    const auto position =
        llvm::find_if(result.list, [](const FactorAtPoint& factor) { return factor.isPosition; });
    const Extents strides = rowMajorStrides(rows.pastExtents);
    std::optional<unsigned> found;
    for (unsigned axis = 0; axis < strides.size(); ++axis)
      if (rows.pastExtents[axis] == position->pastExtent &&
          (position->pastStride == 0 || strides[axis] == position->pastStride) && !found)
        found = axis;
    if (!found)
      return std::nullopt;
    result.sequenceAxis = *found;
  }
  return result;
}

/// The extent that equals values[i] at step i: a number, a multiple of one symbol, or a sum.
Dim extentBehind(llvm::ArrayRef<int64_t> values, StepEvaluations& evaluations) {
  if (llvm::all_of(values, [&](int64_t value) { return value == values.front(); }))
    return Dim::fixed(values.front());
  std::vector<llvm::StringRef> symbols;
  for (const auto& entry : evaluations.at(0).point().extents)
    if (!llvm::is_contained(evaluations.points().keyCounts(), entry.first()))
      symbols.push_back(entry.first());
  llvm::sort(symbols);
  auto isAlways = [&](const Dim& dim) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto& extents = evaluations.at(i).point().extents;
      const auto value = dim.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
        const auto found = extents.find(symbol);
        return found == extents.end() ? std::nullopt : std::optional(found->second);
      });
      if (value != values[i])
        return false;
    }
    return true;
  };
  // Simple ones first: multiples, sums, and then sums with a number.
  const auto& first = evaluations.at(0).point().extents;
  for (llvm::StringRef symbol : symbols) {
    const int64_t extent = first.find(symbol)->second;
    if (extent == 0 || values.front() % extent != 0)
      continue;
    const Dim multiple = Dim::fixed(values.front() / extent) * Dim::symbol(symbol);
    if (isAlways(multiple))
      return multiple;
  }
  for (llvm::StringRef one : symbols)
    for (llvm::StringRef other : symbols)
      if (const Dim sum = Dim::symbol(one) + Dim::symbol(other); isAlways(sum))
        return sum;
  for (llvm::StringRef symbol : symbols) {
    const int64_t extent = first.find(symbol)->second;
    const Dim one = Dim::symbol(symbol);
    for (const Dim& moved :
         {one + Dim::fixed(values.front() - extent), Dim::fixed(values.front() + extent) - one})
      if (isAlways(moved))
        return moved;
  }
  return Dim::unknown();
}

/// The input with the places of written new rows, and its form.
std::optional<WritePlace> placeOf(const Value& value, const Value& fresh,
                                  llvm::ArrayRef<CachedRows> rows, StepEvaluations& evaluations) {
  const Graph& graph = value.graph();
  auto firstWith = [&](const Value* input, bool onlyLast) -> std::optional<CachedRows> {
    EvaluationPoint point = evaluations.at(0).point();
    NumberTensor& numbers = point.inputs[input];
    for (size_t i = 0; i < numbers.numbers.size(); ++i)
      if (!onlyLast || i + 1 == numbers.numbers.size())
        numbers.numbers[i] += 1;
    Evaluation moved(graph, std::move(point));
    return cachedRows(value, &fresh, moved);
  };
  std::optional<WritePlace> place;
  for (const auto& [input, numbers] : evaluations.at(0).point().inputs) {
    if (input->type().elementType() == ElementType::Bool || numbers.numbers.empty())
      continue;
    const auto moved = firstWith(input, false);
    if (!moved || moved->first != rows[0].first + 1)
      continue;
    if (place)
      return std::nullopt;
    place.emplace();
    place->input = input;
    if (numbers.numbers.size() == 1)
      continue;
    const auto torn = firstWith(input, true);
    const Extents& extents = numbers.extents;
    if (torn && torn->first == rows[0].first && torn->count == rows[0].count)
      continue;
    if (static_cast<int64_t>(numbers.numbers.size()) == rows[0].count)
      place->kind = WritePlace::Kind::EachRow;
    else if (extents.front() == rows[0].pastExtents.front() &&
             static_cast<int64_t>(numbers.numbers.size()) == extents.front() * rows[0].count)
      place->kind = WritePlace::Kind::EachBatch;
    else
      return std::nullopt;
  }
  if (!place)
    return std::nullopt;
  llvm::SmallVector<int64_t, 4> offsets;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& numbers = evaluations.at(i).point().inputs.find(place->input)->second.numbers;
    offsets.push_back(rows[i].first - static_cast<int64_t>(numbers.front()));
  }
  place->offset = extentBehind(offsets, evaluations);
  if (place->offset.isUnknown() ||
      (place->kind != WritePlace::Kind::First && place->offset.value() != 0))
    return std::nullopt;
  return place;
}

/// Form on which the points agree.
class Agreement {
public:
  explicit Agreement(StepEvaluations& at)
      : evaluations(at), count(std::min(at.count(), StepPoints::fitted)) {}

  /// Adds the rows at the next point; false if they are not moved along axes.
  bool add(std::optional<CachedRows> found) {
    auto cut = found ? factorsOf(*found) : std::nullopt;
    if (!cut)
      return false;
    rows.push_back(std::move(*found));
    factors.push_back(std::move(*cut));
    return true;
  }

  /// A null `value` means a value that does not exist yet, whose rows overwrite no others.
  std::optional<RespelledRows> result(ElementType element, const Value* value) const;

private:
  bool isSameEverywhere() const;
  bool addFactors(RespelledRows& result, Shape& shape) const;
  bool addParts(RespelledRows& result) const;
  /// The extent that equals number(i) at point i.
  template <typename Number> Dim extentOf(Number number) const {
    llvm::SmallVector<int64_t, 4> values;
    for (size_t i = 0; i < count; ++i)
      values.push_back(number(i));
    return extentBehind(values, evaluations);
  }

  StepEvaluations& evaluations;
  const size_t count;
  std::vector<CachedRows> rows;
  std::vector<FactorsAtPoint> factors;
};

bool Agreement::isSameEverywhere() const {
  const bool isJoined = rows[0].past && rows[0].fresh;
  for (size_t i = 1; i < count; ++i)
    if (rows[i].factor != rows[0].factor || rows[i].past != rows[0].past ||
        rows[i].fresh != rows[0].fresh || rows[i].extents.size() != rows[0].extents.size() ||
        factors[i].list.size() != factors[0].list.size() ||
        factors[i].orderOfPast != factors[0].orderOfPast ||
        factors[i].orderOfFresh != factors[0].orderOfFresh ||
        factors[i].sequenceAxis != factors[0].sequenceAxis ||
        (isJoined && rows[i].isAppended() != rows[0].isAppended()))
      return false;
  return true;
}

bool Agreement::addFactors(RespelledRows& result, Shape& shape) const {
  for (unsigned f = 0; f < factors[0].list.size(); ++f) {
    const FactorAtPoint& first = factors[0].list[f];
    for (size_t i = 1; i < count; ++i)
      if (factors[i].list[f].axis != first.axis ||
          factors[i].list[f].isPosition != first.isPosition ||
          (factors[i].list[f].pastStride == 0) != (first.pastStride == 0))
        return false;
    RowFactor factor{first.axis, !first.isPosition && first.pastStride == 0, first.isPosition, {}};
    factor.extent = extentOf([&](size_t i) {
      const FactorAtPoint& at = factors[i].list[f];
      return at.isPosition ? rows[i].extents[at.axis] : at.pastExtent;
    });
    if (factor.extent.isUnknown())
      return false;
    shape[first.axis] = shape[first.axis] * factor.extent;
    result.factors.push_back(std::move(factor));
  }
  return true;
}

/// Parts are recorded only if something is left out.
bool Agreement::addParts(RespelledRows& result) const {
  bool isWhole = true;
  for (size_t part = 0; part < factors[0].parts.size(); ++part) {
    const unsigned factor = result.orderOfFresh[part];
    result.partsOfFresh.push_back(
        {extentOf([&](size_t i) { return factors[i].parts[part].whole; }),
         extentOf([&](size_t i) { return factors[i].parts[part].start; })});
    SourcePart& found = result.partsOfFresh.back();
    found.blocks = factors[0].parts[part].blocks;
    found.axis = factors[0].parts[part].axis;
    found.unit = factors[0].parts[part].unit;
    for (size_t i = 1; i < count; ++i) {
      const PartAtPoint& at = factors[i].parts[part];
      if (at.blocks != found.blocks || at.axis != found.axis || at.unit != found.unit)
        return false;
    }
    if (found.whole.isUnknown() || found.start.isUnknown())
      return false;
    isWhole &= found.blocks == 0 && found.whole.isKnownEqual(result.factors[factor].extent);
  }
  if (isWhole)
    result.partsOfFresh.clear();
  return true;
}

std::optional<RespelledRows> Agreement::result(ElementType element, const Value* value) const {
  if (rows.empty() || rows.size() != count || !isSameEverywhere())
    return std::nullopt;
  // Casts that keep every number are traced through.
  for (const Value* source : {rows[0].past, rows[0].fresh})
    if (source && source->type().elementType() != element)
      return std::nullopt;
  RespelledRows result;
  result.factor = rows[0].factor;
  result.past = rows[0].past;
  result.fresh = rows[0].fresh;
  result.orderOfPast = factors[0].orderOfPast;
  result.orderOfFresh = factors[0].orderOfFresh;
  result.sequenceAxis = factors[0].sequenceAxis;
  Shape shape(rows[0].extents.size(), Dim::fixed(1));
  if (!addFactors(result, shape) || !addParts(result))
    return std::nullopt;
  result.type = TensorType(element, std::move(shape));
  if (!result.past || !result.fresh)
    return result;
  result.freshRows = extentOf([&](size_t i) { return rows[i].count; });
  result.pastRows = result.past->type().dim(result.sequenceAxis);
  result.skippedRows = extentOf([&](size_t i) { return factors[i].skipped; });
  if (result.freshRows.isUnknown() || result.pastRows.isUnknown() || result.skippedRows.isUnknown())
    return std::nullopt;
  if (rows[0].isAppended())
    return result;
  result.place = value ? placeOf(*value, *result.fresh, rows, evaluations) : std::nullopt;
  return result.place ? std::optional(std::move(result)) : std::nullopt;
}

std::optional<RespelledRows> agreed(const Value& value, const Value* fresh,
                                    StepEvaluations& evaluations) {
  Agreement agreement(evaluations);
  for (size_t i = 0; i < std::min(evaluations.count(), StepPoints::fitted); ++i)
    if (!agreement.add(cachedRows(value, fresh, evaluations.at(i))))
      return std::nullopt;
  return agreement.result(value.type().elementType(), &value);
}

} // namespace

namespace {

/// Whether the value has these extents at a point; true also if the graph cannot run such a step,
/// and the value has none.
bool hasExtents(const Value& value, llvm::ArrayRef<Dim> shape, Evaluation& evaluation) {
  const Extents* extents = evaluation.extents(value);
  if (!extents)
    return true;
  return std::equal(extents->begin(), extents->end(), shape.begin(), shape.end(),
                    [&](int64_t extent, const Dim& dim) {
                      return extent ==
                             dim.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
                               const auto found = evaluation.point().extents.find(symbol);
                               return found == evaluation.point().extents.end()
                                          ? std::nullopt
                                          : std::optional(found->second);
                             });
                    });
}

} // namespace

std::optional<Shape> extentsBehind(const Value& value, StepEvaluations& evaluations) {
  const size_t count = std::min(evaluations.count(), StepPoints::fitted);
  std::vector<Extents> found;
  for (size_t i = 0; i < count; ++i) {
    const Extents* extents = evaluations.at(i).extents(value);
    if (!extents || (i > 0 && extents->size() != found[0].size()))
      return std::nullopt;
    found.push_back(*extents);
  }
  Shape shape;
  for (size_t axis = 0; count > 0 && axis < found[0].size(); ++axis) {
    llvm::SmallVector<int64_t, 4> values;
    for (const Extents& extents : found)
      values.push_back(extents[axis]);
    shape.push_back(extentBehind(values, evaluations));
    if (shape.back().isUnknown())
      return std::nullopt;
  }
  const bool isFound = count > 0 && llvm::all_of(evaluations.allPoints(), [&](Evaluation* point) {
                         return hasExtents(value, shape, *point);
                       });
  return isFound ? std::optional(shape) : std::nullopt;
}

std::optional<RespelledRows> respelledRows(const Value& value, StepEvaluations& evaluations,
                                           llvm::ArrayRef<const Value*> preferred) {
  if (evaluations.count() == 0)
    return std::nullopt;
  if (auto rows = agreed(value, nullptr, evaluations))
    return rows;
  const std::vector<const Value*> candidates = freshCandidates(value, evaluations.at(0));
  for (const Value* fresh : preferred)
    if (llvm::is_contained(candidates, fresh))
      if (auto rows = agreed(value, fresh, evaluations))
        return rows;
  for (const Value* fresh : candidates)
    if (auto rows = agreed(value, fresh, evaluations))
      return rows;
  return std::nullopt;
}

std::optional<RespelledRows> rowsMovedFrom(const Value& value, const Value& source,
                                           StepEvaluations& evaluations) {
  return agreed(value, &source, evaluations);
}

std::optional<RespelledRows> rowsOf(llvm::ArrayRef<ArrangedElements> arranged, ElementType element,
                                    StepEvaluations& evaluations) {
  Agreement agreement(evaluations);
  for (size_t i = 0; i < arranged.size(); ++i) {
    CachedRows rows;
    rows.extents = arranged[i].extents;
    rows.fresh = arranged[i].source;
    const Extents* extents = rows.fresh ? evaluations.at(i).extents(*rows.fresh) : nullptr;
    rows.freshExtents =
        extents ? *extents : Extents{static_cast<int64_t>(arranged[i].elements.size())};
    auto fit = fitMovement(rows.extents, arranged[i].elements);
    if (!fit)
      return std::nullopt;
    rows.count = rows.extents[0];
    rows.ofFresh = std::move(*fit);
    if (!agreement.add(std::move(rows)))
      return std::nullopt;
  }
  return agreement.result(element, nullptr);
}

} // namespace kvopt::rows
