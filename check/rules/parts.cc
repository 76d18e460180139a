// Rules of operators that take parts of a tensor, or add margins to it.
#include "check/arithmetic/call.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::check {
namespace {

/// Notes where the behavior of a slice along an axis changes: where a bound is negative, so that it
/// counts from the end, where it is beyond either end, and where the range is empty. Computed
/// bounds within a table of constants are not looked at.
void noteBounds(Call& call, int64_t start, int64_t end, int64_t extent, unsigned axis) {
  enum { Sign, First, Last, Bounds };
  auto isNoted = [&](unsigned operand) {
    const Ref given = call.in(operand);
    return !call.in(0)->isConstant || !given || given->isConstant;
  };
  auto note = [&](int64_t bound, unsigned operand) {
    const size_t place = (axis * 3 + operand) * Bounds;
    const int64_t at = bound < 0 ? bound + extent : bound;
    call.noteThreshold(bound, place + Sign);
    call.noteThreshold(at - extent, place + Last);
    if (bound < 0)
      call.noteThreshold(at, place + First);
    return at;
  };
  const bool hasStart = std::abs(start) < unlimited && isNoted(1);
  const bool hasEnd = std::abs(end) < unlimited && isNoted(2);
  const int64_t first = hasStart ? note(start, 1) : 0;
  const int64_t last = hasEnd ? note(end, 2) : 0;
  if (hasStart && hasEnd)
    call.noteThreshold(last - first, axis * 3 * Bounds);
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
    ranges[i].count = data->shape[i];
  for (size_t i = 0; i < starts->size(); ++i) {
    auto axis =
        axisOf(axes && i < axes->size() ? (*axes)[i] : static_cast<int64_t>(i), data->rank());
    const int64_t step = steps && i < steps->size() ? (*steps)[i] : 1;
    if (!axis || step == 0)
      return call.fail("an axis is out of range");
    noteBounds(call, (*starts)[i], (*ends)[i], data->shape[*axis], *axis);
    // Bounds far outside are the same as the ends.
    constexpr int64_t far = int64_t(1) << 40;
    ranges[*axis] = rangeOf(std::clamp((*starts)[i], -far, far), std::clamp((*ends)[i], -far, far),
                            step, data->shape[*axis]);
  }
  Extents shape, strides = stridesOf(data->shape);
  int64_t first = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    shape.push_back(ranges[i].count);
    first += ranges[i].start * strides[i];
    strides[i] *= ranges[i].step;
  }
  return {strided(data, std::move(shape), strides, first)};
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
  call.noteThreshold(data->shape.back() - 1 - shift, 0, /*meets=*/true);
  if (data->isHollow)
    return call.hollow(data->shape);
  auto result = std::make_shared<Tensor>(*data);
  size_t at = 0;
  forEachPlace(data->shape, [&](llvm::ArrayRef<int64_t> place) {
    const int64_t diagonal = place[place.size() - 1] - place[place.size() - 2] - shift;
    if (isUpper ? diagonal < 0 : diagonal > 0) {
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
  Ref fill = call.in(2);
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
