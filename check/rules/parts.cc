// Rules of operators that take parts of a tensor, or add margins to it.
#include "check/arithmetic/call.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace kvopt::check {
namespace {

/// Indices that a slice of an axis takes.
struct Range {
  int64_t start = 0, step = 1, count = 0;
  GrowthId ofStart = fixedGrowth, ofCount = fixedGrowth;
};

/// A bound of a slice, with its growth: the one that is written, or an end of the axis.
struct Bound {
  int64_t at = 0;
  GrowthId growth = fixedGrowth;
  Growths::Number number() const { return {growth, double(at)}; }
};

/// Finds what a slice takes of one axis, and notes where its behavior changes: where a bound is
/// negative, so that it counts from the end, where it is beyond either end, and where the range is
/// empty.
class SlicedAxis {
public:
  SlicedAxis(Call& evaluated, unsigned sliced)
      : call(evaluated),
        growths(evaluated.math.growths), length{evaluated.in(0)->shape[sliced],
                                                evaluated.in(0)->extentGrowth(sliced)},
        isTable(evaluated.in(0)->isConstant) {}

  Range take(Bound start, Bound end, int64_t step) const {
    const Bound last{length.at - 1, growths.sum(length.number(), {fixedGrowth, 1}, -1)};
    const Bound zero, before{-1};
    if (length.at == 0 && step < 0)
      return {0, step, 0, fixedGrowth, fixedGrowth};
    // A start before the first element becomes the first one, even if the step is negative.
    start = within(fromEnd(start), zero, step > 0 ? length : last);
    end = within(fromEnd(end), step > 0 ? zero : before, step > 0 ? length : last);
    const Bound& low = step > 0 ? start : end;
    const Bound& high = step > 0 ? end : start;
    call.noteThreshold(high.number(), low.number(), /*isExact=*/false);
    const int64_t span = high.at - low.at;
    if (span < 0)
      return {start.at, step, 0, start.growth, fixedGrowth};
    const auto stride = step > 0 ? uint64_t(step) : 0 - uint64_t(step);
    const int64_t count = span == 0 ? 0 : int64_t((uint64_t(span) - 1) / stride) + 1;
    return {start.at, step, count, start.growth, countOf(low, high, stride)};
  }

private:
  Bound fromEnd(Bound bound) const {
    if (bound.growth == fixedGrowth && std::abs(double(bound.at)) >= double(unlimited))
      return bound.at < 0 ? Bound{-1 - length.at} : Bound{bound.at};
    call.noteThreshold(bound.number(), {fixedGrowth, 0}, /*isExact=*/false);
    if (bound.at >= 0)
      return bound;
    return {bound.at + length.at, growths.sum(bound.number(), length.number())};
  }
  /// Sizes that a table of constants does not reach are those that the model does not accept. No
  /// number may depend on how many rows of it there are.
  Bound within(const Bound& bound, const Bound& low, const Bound& high) const {
    if (bound.growth == fixedGrowth && bound.at >= unlimited)
      return high;
    if (bound.growth == fixedGrowth && bound.at < -length.at)
      return low;
    call.noteThreshold(bound.number(), low.number(), /*isExact=*/false);
    if (!isTable)
      call.noteThreshold(bound.number(), high.number(), /*isExact=*/false);
    return bound.at < low.at ? low : bound.at > high.at ? high : bound;
  }
  GrowthId countOf(const Bound& low, const Bound& high, uint64_t stride) const {
    const GrowthId span = growths.sum(high.number(), low.number(), -1);
    if (isTable && span != fixedGrowth)
      return growths.untraced(call.node.describe() + " takes rows of a table of constants");
    if (stride == 1 || span == fixedGrowth)
      return span;
    const Growths::Number one{fixedGrowth, 1}, apart{fixedGrowth, double(stride)};
    const Growths::Number most{growths.sum({span, 0}, one, -1), double(high.at - low.at - 1)};
    call.noteSteps(most, apart.value);
    return growths.sum({growths.quotient(most, apart, true), 0}, one);
  }

  Call& call;
  Growths& growths;
  Bound length;
  bool isTable;
};

/// The growths of the numbers that a slice takes of a table of constants along an axis.
void traceTable(Call& call, const Range& range, unsigned axis, const Tensor& data, Tensor& result) {
  if (!data.isInteger() || data.isBool() ||
      (range.ofStart == fixedGrowth && range.ofCount == fixedGrowth))
    return;
  Growths& growths = call.math.growths;
  const auto apart = progression(data, axis);
  const GrowthId untraced =
      growths.untraced(call.node.describe() + " takes rows of a table of constants");
  GrowthId id = untraced;
  if (apart)
    id = growths.indexed(growths.product({range.ofStart, double(range.start)}, {0, *apart}),
                         double(range.start) * *apart, *apart * double(range.step));
  if (!result.growths.empty()) // along another axis, too
    id = untraced;
  result.growths.assign(static_cast<size_t>(result.count()), id);
}

/// The growth of one of the integers that an operand has instead of an attribute.
GrowthId growthIn(const Call& call, llvm::StringRef attribute, unsigned operand, size_t at) {
  const Ref given = call.attribute(attribute) ? nullptr : call.in(operand);
  return given && at < static_cast<size_t>(given->count()) ? given->growth(at) : fixedGrowth;
}

/// Notes the entries of an axis that a result has of the first operand. The others select them.
void noteTaken(Call& call, unsigned axis, int64_t first, int64_t step, int64_t count,
               size_t result = 0) {
  std::vector<int64_t> entries;
  if (call.in(0)->isTableAlong(axis))
    for (int64_t i = 0; i < count; ++i)
      entries.push_back(first + i * step);
  call.noteRead(0, axis, entries, call.operands.drop_front(), static_cast<unsigned>(result));
}

Results slice(Call& call) {
  const Ref data = call.in(0);
  auto starts = call.integers("starts", 1);
  auto ends = call.integers("ends", 2);
  auto axes = call.integers("axes", 3);
  auto steps = call.integers("steps", 4);
  if (!starts || !ends || starts->size() != ends->size())
    return call.unsupported("its ranges are unknown");
  std::vector<Range> ranges(data->shape.size());
  for (size_t i = 0; i < ranges.size(); ++i)
    ranges[i] = {0, 1, data->shape[i], fixedGrowth, data->extentGrowth(i)};
  for (size_t i = 0; i < starts->size(); ++i) {
    auto axis =
        axisOf(axes && i < axes->size() ? (*axes)[i] : static_cast<int64_t>(i), data->rank());
    const int64_t step = steps && i < steps->size() ? (*steps)[i] : 1;
    if (!axis || step == 0)
      return call.fail("an axis is out of range");
    ranges[*axis] = SlicedAxis(call, *axis)
                        .take({(*starts)[i], growthIn(call, "starts", 1, i)},
                              {(*ends)[i], growthIn(call, "ends", 2, i)}, step);
    if (growthIn(call, "steps", 4, i) != fixedGrowth || growthIn(call, "axes", 3, i) != fixedGrowth)
      call.math.thresholds.noteOpen(call.node.describe() + " has a step that depends on sizes");
  }
  Extents shape, strides = stridesOf(data->shape);
  int64_t first = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    noteTaken(call, static_cast<unsigned>(i), ranges[i].start, ranges[i].step, ranges[i].count);
    shape.push_back(ranges[i].count);
    first += ranges[i].start * strides[i];
    strides[i] *= ranges[i].count > 1 ? ranges[i].step : 1; // a step may be as large as its type
  }
  auto result = std::make_shared<Tensor>(*strided(data, std::move(shape), strides, first));
  for (size_t i = 0; i < ranges.size(); ++i) {
    result->extentGrowths.push_back(ranges[i].ofCount);
    if (data->isConstant)
      traceTable(call, ranges[i], static_cast<unsigned>(i), *data, *result);
  }
  return {result};
}

Results split(Call& call) {
  const Ref data = call.in(0);
  auto axis = axisOf(call.integer("axis", 0), data->rank());
  if (!axis)
    return call.fail("its axis is out of range");
  const auto outputs = static_cast<int64_t>(call.node.results().size());
  const int64_t extent = data->shape[*axis];
  auto sizes = call.integers("split", 1);
  if (!sizes) {
    const int64_t each = (extent + outputs - 1) / outputs;
    sizes.emplace();
    for (int64_t i = 0; i < outputs; ++i)
      sizes->push_back(std::clamp<int64_t>(extent - i * each, 0, each));
  }
  if (llvm::any_of(*sizes, [&](int64_t size) { return size < 0 || size > extent; }) ||
      std::accumulate(sizes->begin(), sizes->end(), int64_t(0)) != extent)
    return call.fail("the parts are not the whole");
  Results parts;
  int64_t first = 0;
  for (int64_t size : *sizes) {
    noteTaken(call, *axis, first, 1, size, parts.size());
    parts.push_back(rowsOf(data, *axis, first, first + size));
    first += size;
  }
  return parts;
}

Results trilu(Call& call) {
  const Ref data = call.in(0);
  const int64_t shift = call.in(1) && call.in(1)->isInteger() && !call.in(1)->integers.empty()
                            ? call.in(1)->integers[0]
                            : 0;
  if (data->rank() < 2)
    return call.fail("its data has fewer than two axes");
  const bool isUpper = call.integer("upper", 1) != 0;
  // The band meets the corners of the matrix.
  const Growths::Number columns = data->extent(data->shape.size() - 1);
  const Growths::Number offset = call.in(1) && call.in(1)->isInteger() && call.in(1)->count() == 1
                                     ? call.in(1)->number(0)
                                     : Growths::Number{};
  call.noteThreshold({call.math.growths.sum(columns, {fixedGrowth, -1}), columns.value - 1}, offset,
                     /*isExact=*/true);
  const Growths::Number rows = data->extent(data->shape.size() - 2);
  call.noteThreshold({call.math.growths.sum(rows, {fixedGrowth, -1}), rows.value - 1},
                     {call.math.growths.product(offset, {fixedGrowth, -1}), -offset.value},
                     /*isExact=*/true);
  if (data->isHollow)
    return call.hollow(data->shape);
  noteTaken(call, static_cast<unsigned>(data->rank() - 1), 0, 1, 0);
  auto result = std::make_shared<Tensor>(*data);
  size_t at = 0;
  forEachPlace(data->shape, [&](llvm::ArrayRef<int64_t> place) {
    const int64_t diagonal = place[place.size() - 1] - place[place.size() - 2] - shift;
    if (isUpper ? diagonal < 0 : diagonal > 0) {
      if (!result->growths.empty())
        result->growths[at] = fixedGrowth;
      if (data->isInteger())
        result->integers[at] = 0;
      else if (data->isReal())
        result->reals[at] = {};
      else
        result->known[at] = 0;
    }
    ++at;
  });
  return {result};
}

/// Numbers of elements that are added or, if they are negative, taken away.
std::vector<Growths::Number> padsOf(const Call& call) {
  std::vector<Growths::Number> numbers;
  const Ref given = call.attribute("pads") ? nullptr : call.in(1);
  for (size_t i = 0; given && i < given->integers.size(); ++i)
    numbers.push_back(given->number(i));
  return numbers;
}

Results pad(Call& call) {
  const Ref data = call.in(0);
  auto pads = call.integers("pads", 1);
  auto axes = call.integers("axes", 3);
  if (!pads || call.text("mode", "constant") != "constant")
    return call.unsupported("its padding is unknown");
  Extents before(data->shape.size(), 0);
  Extents shape = data->shape;
  const size_t padded = pads->size() / 2;
  for (size_t i = 0; i < padded; ++i) {
    auto axis =
        axisOf(axes && i < axes->size() ? (*axes)[i] : static_cast<int64_t>(i), data->rank());
    if (!axis)
      return call.fail("an axis is out of range");
    before[*axis] = (*pads)[i];
    shape[*axis] += (*pads)[i] + (*pads)[i + padded];
  }
  if (elementCount(shape) < 0)
    return call.fail("the result has no valid shape");
  for (unsigned i = 0; i < before.size(); ++i)
    if (before[i] < 0 || shape[i] < before[i] + data->shape[i])
      noteTaken(call, i, std::max<int64_t>(-before[i], 0), 1,
                std::min(shape[i] - before[i], data->shape[i]) - std::max<int64_t>(-before[i], 0));
  Ref fill = call.in(2);
  for (const Growths::Number& number : padsOf(call))
    call.noteThreshold(number, {fixedGrowth, 0}, /*isExact=*/false);
  if (!fill) {
    auto zero = std::make_shared<Tensor>();
    zero->kind = data->isInteger() ? Kind::Integer : Kind::Known;
    zero->integers = {0};
    zero->known = {0};
    fill = zero;
  }
  if (fill->count() != 1)
    return call.fail("its fill is not a single element");
  // The fill becomes one more entry, which padded places take.
  Ref both[] = {reshaped(data, {data->count()}), reshaped(fill, {1})};
  Ref list = concatenated(call, both, 0);
  if (!list)
    return call.unsupported("the data is too large");
  const Extents strides = stridesOf(data->shape);
  return {rearranged(list, shape, [&](llvm::ArrayRef<int64_t> place) {
    int64_t at = 0;
    for (size_t i = 0; i < place.size(); ++i) {
      const int64_t source = place[i] - before[i];
      if (source < 0 || source >= data->shape[i])
        return data->count();
      at += source * strides[i];
    }
    return at;
  })};
}

} // namespace

void addPartRules(RuleTable& rules) {
  rules["Slice"] = slice;
  rules["Split"] = split;
  rules["Trilu"] = trilu;
  rules["Pad"] = pad;
}

} // namespace kvopt::check
