// Operators that cut and join along axes: Concat, Split, Slice.
#include "ir/shapes/shape_rules.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cstdint>

namespace kvopt::ir {
namespace {

void joinElements(ShapeContext& context, unsigned count) {
  Integers joined;
  for (unsigned i = 0; i < count; ++i) {
    std::optional<Integers> part = context.integers(i);
    std::optional<int64_t> length = context.type(i).dim(0).value();
    if (!part && length && *length >= 0 && *length <= maxTrackedIntegers)
      part = Integers(static_cast<size_t>(*length), Dim::unknown());
    if (!part || int64_t(joined.size() + part->size()) > maxTrackedIntegers)
      return;
    joined.append(*part);
  }
  context.setIntegers(0, std::move(joined));
}

llvm::Error inferConcat(ShapeContext& context) {
  unsigned count = static_cast<unsigned>(context.node().operands().size());
  const TensorType* ranked = nullptr;
  bool allRanked = count != 0;
  for (unsigned i = 0; i < count; ++i) {
    if (!context.type(i).hasRank()) {
      allRanked = false;
      continue;
    }
    if (ranked && ranked->rank() != context.type(i).rank())
      return context.error(
          formatted("ranks of {} and {} differ", ranked->str(), context.type(i).str()));
    ranked = &context.type(i);
  }
  if (!ranked) {
    context.setResult(0, TensorType(context.element(0)));
    return llvm::Error::success();
  }
  llvm::Expected<unsigned> axis = axisAttr(context, "axis", 1, ranked->rank());
  if (!axis)
    return axis.takeError();
  Shape shape = unknownShape(ranked->rank());
  shape[*axis] = allRanked ? Dim::fixed(0) : Dim::unknown();
  for (unsigned i = 0; i < count; ++i) {
    const TensorType& part = context.type(i);
    if (!part.hasRank())
      continue;
    for (unsigned j = 0; j < shape.size(); ++j) {
      if (j == *axis) {
        shape[j] = shape[j] + part.shape()[j];
        continue;
      }
      if (llvm::Error error =
              requireEqual(context, shape[j], part.shape()[j], formatted("extents of axis {}", j)))
        return error;
      shape[j] = mergedExtent(shape[j], part.shape()[j]);
    }
  }
  context.setResult(0, TensorType(context.element(0), std::move(shape)));
  if (allRanked && ranked->rank() == 1)
    joinElements(context, count);
  return llvm::Error::success();
}

// Extent that remains for the last of `count` parts of `chunk` each. Earlier parts may already use
// up all of it.
Dim lastPart(const Dim& extent, const Dim& chunk, int64_t count) {
  Dim rest = extent - chunk * Dim::fixed(count - 1);
  return rest.isKnownNonNegative() ? rest : Dim::unknown();
}

// Extents of Split's results; unknown if nothing determines them.
llvm::Expected<Integers> splitSizes(ShapeContext& context, const Dim& extent) {
  size_t parts = context.resultCount();
  if (std::optional<llvm::ArrayRef<int64_t>> sizes = context.node().intsAttr("split")) {
    Integers result;
    for (int64_t size : *sizes)
      result.push_back(Dim::fixed(size));
    return result;
  }
  if (context.has(1)) {
    std::optional<Integers> sizes = context.integers(1);
    return sizes ? *sizes : unknownShape(parts);
  }
  int64_t count = static_cast<int64_t>(parts);
  bool mayBeUneven = context.opset() >= 18;
  if (mayBeUneven)
    count = context.node().intAttr("num_outputs", count);
  if (count <= 0 || count != static_cast<int64_t>(parts))
    return context.error(formatted("{} parts for {} results", count, parts));
  if (!mayBeUneven && extent.value() && *extent.value() % count != 0)
    return context.error(formatted("{} does not split into {} equal parts", extent.str(), count));
  Dim chunk = ceilDivide(extent, count);
  Integers result(parts, chunk);
  result.back() = lastPart(extent, chunk, count);
  return result.back().isUnknown() ? unknownShape(parts) : result;
}

llvm::Error inferSplit(ShapeContext& context) {
  const TensorType& type = context.type(0);
  if (!type.hasRank()) {
    for (unsigned i = 0; i < context.resultCount(); ++i)
      context.setResult(i, TensorType(context.element(0)));
    return llvm::Error::success();
  }
  llvm::Expected<unsigned> axis = axisAttr(context, "axis", 0, type.rank());
  if (!axis)
    return axis.takeError();
  const Dim& extent = type.shape()[*axis];
  llvm::Expected<Integers> sizes = splitSizes(context, extent);
  if (!sizes)
    return sizes.takeError();
  if (sizes->size() != context.resultCount())
    return context.error(
        formatted("{} sizes for {} results", sizes->size(), context.resultCount()));
  Dim total = Dim::fixed(0);
  for (const Dim& size : *sizes) {
    if (size.value() && *size.value() < 0)
      return context.error(formatted("size {} is negative", size.str()));
    total = total + size;
  }
  if (llvm::Error error = requireEqual(context, total, extent, "the sum of sizes and the extent"))
    return error;

  std::optional<Integers> elements = type.rank() == 1 ? context.integers(0) : std::nullopt;
  size_t first = 0;
  for (unsigned i = 0; i < context.resultCount(); ++i) {
    Shape shape = shapeOf(type);
    const Dim& size = (*sizes)[i];
    shape[*axis] = size.isKnownNonNegative() ? size : Dim::unknown();
    context.setResult(i, TensorType(context.element(0), std::move(shape)));
    if (!elements || !size.value() ||
        static_cast<size_t>(*size.value()) > elements->size() - first) {
      elements.reset();
      continue;
    }
    size_t length = static_cast<size_t>(*size.value());
    context.setIntegers(i, Integers(elements->begin() + first, elements->begin() + first + length));
    first += length;
  }
  return llvm::Error::success();
}

struct SliceRange {
  Dim start, end;
  int64_t step = 1;
};

// An index in [0, extent], for a positive step; unknown if this cannot be proved. Exporters write
// the largest value of an index type for "to the end".
Dim clampedIndex(const Dim& index, const Dim& extent, ElementType type) {
  int64_t largest = type == ElementType::Int32 ? INT32_MAX : INT64_MAX;
  if (index.value() == largest)
    return extent;
  Dim place = index;
  if (!index.isKnownNonNegative()) {
    if (!index.isKnownLess(Dim::fixed(0)))
      return Dim::unknown();
    place = extent + index;
    if ((-place).isKnownNonNegative())
      return Dim::fixed(0);
    if (!place.isKnownNonNegative())
      return Dim::unknown();
  }
  if (place.isKnownLessEqual(extent))
    return place;
  return extent.isKnownLessEqual(place) ? extent : Dim::unknown();
}

// First index and count of a slice with constants, as ONNX defines them.
std::pair<int64_t, int64_t> constantSlice(int64_t start, int64_t end, int64_t step,
                                          int64_t extent) {
  if (extent <= 0)
    return {0, 0};
  auto place = [extent](int64_t index) { return index < 0 ? index + extent : index; };
  int64_t lowest = step > 0 ? 0 : -1;
  int64_t first = std::clamp<int64_t>(place(start), 0, step > 0 ? extent : extent - 1);
  int64_t last = std::clamp<int64_t>(place(end), lowest, step > 0 ? extent : extent - 1);
  if (step > 0 ? first >= last : first <= last)
    return {0, 0};
  uint64_t span = static_cast<uint64_t>(step > 0 ? last - first : first - last);
  uint64_t stride =
      step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  return {first, static_cast<int64_t>((span - 1) / stride + 1)};
}

/// Length of a range between known indices, if it ends within the extent; unknown if it could be
/// negative.
Dim lengthWithin(const SliceRange& range) {
  const Dim length = range.end - range.start;
  const bool isCount =
      range.step == 1 && range.start.isKnownNonNegative() && length.isKnownNonNegative();
  return isCount ? length : Dim::unknown();
}

Dim sliceLength(const SliceRange& range, const Dim& extent, ElementType type) {
  if (extent.value() && range.start.value() && range.end.value())
    return Dim::fixed(
        constantSlice(*range.start.value(), *range.end.value(), range.step, *extent.value())
            .second);
  if (range.step < 0) {
    int64_t lowest = type == ElementType::Int32 ? INT32_MIN : INT64_MIN;
    bool isReversal = range.step == -1 && range.start.value() == int64_t{-1} && range.end.value() &&
                      (*range.end.value() <= lowest + 1);
    return isReversal ? extent : Dim::unknown();
  }
  Dim length = clampedIndex(range.end, extent, type) - clampedIndex(range.start, extent, type);
  if ((-length).isKnownNonNegative())
    return Dim::fixed(0);
  return length.isKnownNonNegative() ? ceilDivide(length, range.step) : Dim::unknown();
}

struct SliceOperands {
  std::optional<Integers> starts, ends, steps;
  std::optional<llvm::SmallVector<int64_t, 8>> axes;
  ElementType type = ElementType::Int64;
};

Integers asDims(llvm::ArrayRef<int64_t> values) {
  Integers dims;
  for (int64_t value : values)
    dims.push_back(Dim::fixed(value));
  return dims;
}

SliceOperands sliceOperands(ShapeContext& context) {
  SliceOperands slice;
  if (context.opset() < 10) {
    if (auto starts = context.node().intsAttr("starts"))
      slice.starts = asDims(*starts);
    if (auto ends = context.node().intsAttr("ends"))
      slice.ends = asDims(*ends);
    if (auto axes = context.node().intsAttr("axes"))
      slice.axes.emplace(axes->begin(), axes->end());
  } else {
    slice.starts = context.integers(1);
    slice.ends = context.integers(2);
    slice.axes = context.constantIntegers(3);
    slice.steps = context.integers(4);
    if (context.element(1) != ElementType::Undefined)
      slice.type = context.element(1);
  }
  // Lengths that are known without contents.
  std::optional<int64_t> count = context.type(1).dim(0).value();
  size_t length = slice.starts ? slice.starts->size()
                  : slice.ends ? slice.ends->size()
                  : slice.axes ? slice.axes->size()
                  : count && *count >= 0 && *count <= maxTrackedIntegers
                      ? static_cast<size_t>(*count)
                      : 0;
  if (!slice.starts)
    slice.starts = unknownShape(length);
  if (!slice.ends)
    slice.ends = unknownShape(length);
  if (!slice.steps)
    slice.steps = Integers(length, context.has(4) ? Dim::unknown() : Dim::fixed(1));
  if (!slice.axes && !context.has(3)) {
    slice.axes.emplace();
    for (size_t i = 0; i < length; ++i)
      slice.axes->push_back(static_cast<int64_t>(i));
    if (length == 0)
      slice.axes.reset();
  }
  return slice;
}

llvm::Error inferSlice(ShapeContext& context) {
  const TensorType& type = context.type(0);
  if (!type.hasRank()) {
    context.setResult(0, TensorType(context.element(0)));
    return llvm::Error::success();
  }
  SliceOperands slice = sliceOperands(context);
  if (!slice.axes) {
    context.setResult(0, TensorType(context.element(0), unknownShape(type.rank())));
    return llvm::Error::success();
  }
  auto axes = normalizedAxes(context, *slice.axes, type.rank());
  if (!axes)
    return axes.takeError();
  if (axes->size() != slice.starts->size() || axes->size() != slice.ends->size() ||
      axes->size() != slice.steps->size())
    return context.error("starts, ends, axes and steps have different lengths");
  Shape shape = shapeOf(type);
  std::optional<Integers> elements = type.rank() == 1 ? context.integers(0) : std::nullopt;
  for (size_t i = 0; i < axes->size(); ++i) {
    Dim& extent = shape[(*axes)[i]];
    const Dim& step = (*slice.steps)[i];
    if (step.value() == int64_t{0})
      return context.error("a step is 0");
    SliceRange range{(*slice.starts)[i], (*slice.ends)[i], step.value().value_or(0)};
    if (elements && step.value() && range.start.value() && range.end.value()) {
      auto part = constantSlice(*range.start.value(), *range.end.value(), range.step,
                                static_cast<int64_t>(elements->size()));
      Integers picked;
      for (int64_t k = 0; k < part.second; ++k)
        picked.push_back((*elements)[static_cast<size_t>(part.first + k * range.step)]);
      elements = std::move(picked);
    } else {
      elements.reset();
    }
    extent = step.value() ? sliceLength(range, extent, slice.type) : Dim::unknown();
    if (extent.isUnknown() && context.node().isWithinAssumed())
      extent = lengthWithin(range);
    if (extent.isUnknown() && (range.start.isUnknown() || range.end.isUnknown()))
      extent = ownExtent(context.node().result(), (*axes)[i]);
  }
  context.setResult(0, TensorType(context.element(0), std::move(shape)));
  context.setIntegers(0, std::move(elements));
  return llvm::Error::success();
}

void readConcat(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& type =
      result.type().hasRank() ? result.type() : node.operand(movement.data)->type();
  if (type.hasRank())
    movement.axes = axesWithin({node.intAttr("axis", type.rank())}, type.rank());
}

// Each part begins at the end of the previous one.
void readSplit(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  if (data.hasRank())
    movement.axes = axesWithin({node.intAttr("axis", 0)}, data.rank());
  if (!movement.axes)
    return;
  const unsigned axis = *movement.axis();
  Dim start = Dim::fixed(0);
  for (unsigned part = 0; part < result.resultIndex(); ++part)
    start = start + node.result(part).type().dim(axis);
  movement.ranges.push_back({{start}, {start + result.type().dim(axis)}, {Dim::fixed(1)}});
}

// Starts, ends or steps of a Slice, from an attribute or an operand.
class SliceNumbers {
public:
  SliceNumbers(const Node& node, const char* attribute, unsigned operand)
      : written(node.intsAttr(attribute)), list(node.operand(operand)),
        known(list ? list->knownIntegers() : std::nullopt) {}

  bool isGiven() const { return written || list; }
  std::optional<size_t> count() const {
    if (written)
      return written->size();
    if (known)
      return known->size();
    std::optional<int64_t> length =
        list && list->type().hasRank() ? list->type().dim(0).value() : std::nullopt;
    return length && *length >= 0 ? std::optional<size_t>(*length) : std::nullopt;
  }
  MovementNumber at(size_t entry) const {
    if (written)
      return {Dim::fixed((*written)[entry])};
    return {known ? (*known)[entry] : Dim::unknown(), list, static_cast<unsigned>(entry)};
  }

private:
  std::optional<llvm::ArrayRef<int64_t>> written;
  const Value* list;
  std::optional<llvm::SmallVector<Dim, 4>> known;
};

// Converts a known start or end to an index in an axis of that extent, between `lowest` and
// `highest`.
void placeWithin(MovementNumber& number, int64_t extent, int64_t lowest, int64_t highest) {
  if (std::optional<int64_t> index = number.known.value())
    number.known = Dim::fixed(std::clamp(*index < 0 ? *index + extent : *index, lowest, highest));
}

void readSlice(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  const TensorType& data = node.operand(0)->type();
  if (!data.hasRank())
    return;
  const SliceNumbers starts(node, "starts", 1), ends(node, "ends", 2), steps(node, "steps", 4);
  std::optional<size_t> count = starts.count();
  auto listed = knownIntegersOf(node, 3, "axes");
  if (!listed && !node.operand(3) && count && *count <= size_t{data.rank()}) {
    listed.emplace();
    for (size_t axis = 0; axis < *count; ++axis)
      listed->push_back(static_cast<int64_t>(axis));
  }
  if (!listed)
    return;
  for (const SliceNumbers* numbers : {&starts, &ends, &steps})
    if (numbers->isGiven() && numbers->count().value_or(listed->size()) != listed->size())
      return;
  movement.axes = axesWithin(*listed, data.rank());
  for (size_t i = 0; movement.axes && i < listed->size(); ++i) {
    MovementRange range{starts.at(i), ends.at(i),
                        steps.isGiven() ? steps.at(i) : MovementNumber{Dim::fixed(1)}};
    std::optional<int64_t> extent = data.shape()[(*movement.axes)[i]].value();
    std::optional<int64_t> step = range.step.known.value();
    if (extent && step && (*extent > 0 || *step > 0)) {
      placeWithin(range.start, *extent, 0, *step > 0 ? *extent : *extent - 1);
      if (*step > 0)
        placeWithin(range.end, *extent, 0, *extent);
    }
    movement.ranges.push_back(std::move(range));
  }
}

} // namespace

void register_slicing(OpRegistry& registry) {
  define(registry, "Concat", 1)
      .in("inputs+")
      .out("concat_result")
      .attr("axis", int64_t{1})
      .moves(MovementKind::Concat, readConcat)
      .shape(inferConcat);
  define(registry, "Concat", 4)
      .in("inputs+")
      .out("concat_result")
      .requiredAttr("axis", AttributeKind::Int)
      .moves(MovementKind::Concat, readConcat)
      .shape(inferConcat);
  define(registry, "Split", 2)
      .in("input")
      .out("outputs+")
      .attr("axis", int64_t{0})
      .attr("split", AttributeKind::Ints)
      .moves(MovementKind::Slice, readSplit)
      .shape(inferSplit);
  define(registry, "Split", 13)
      .in("input")
      .in("split?")
      .out("outputs+")
      .attr("axis", int64_t{0})
      .moves(MovementKind::Slice, readSplit)
      .shape(inferSplit);
  define(registry, "Split", 18)
      .in("input")
      .in("split?")
      .out("outputs+")
      .attr("axis", int64_t{0})
      .attr("num_outputs", AttributeKind::Int)
      .moves(MovementKind::Slice, readSplit)
      .shape(inferSplit);
  define(registry, "Slice", 1)
      .in("data")
      .out("output")
      .attr("axes", AttributeKind::Ints)
      .requiredAttr("starts", AttributeKind::Ints)
      .requiredAttr("ends", AttributeKind::Ints)
      .moves(MovementKind::Slice, readSlice)
      .shape(inferSlice);
  define(registry, "Slice", 10)
      .in("data")
      .in("starts")
      .in("ends")
      .in("axes?")
      .in("steps?")
      .out("output")
      .moves(MovementKind::Slice, readSlice)
      .shape(inferSlice);
}

} // namespace kvopt::ir
