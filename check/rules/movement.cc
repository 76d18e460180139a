// Rules of operators that move elements.
#include "check/arithmetic/call.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace kvopt::check {

Ref concatenated(Call& call, llvm::ArrayRef<Ref> parts, unsigned axis) {
  std::vector<Ref> all(parts.begin(), parts.end());
  if (all.size() == 1)
    return all.front();
  unify(call, all);
  auto result = std::make_shared<Tensor>(*all.front());
  result->integers.clear();
  result->known.clear();
  result->reals.clear();
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i]->rank() != result->rank())
      return nullptr;
    for (size_t k = 0; k < result->shape.size(); ++k)
      if (k != axis && all[i]->shape[k] != result->shape[k])
        return nullptr;
    result->shape[axis] += all[i]->shape[axis];
    result->isSpecial |= all[i]->isSpecial;
    result->isToken |= all[i]->isToken;
    result->isConstant &= all[i]->isConstant;
    result->period = commonPeriod(result->period, all[i]->period);
  }
  if (elementCount(result->shape) < 0)
    return nullptr;
  if (result->isHollow)
    return result;
  int64_t outer = 1;
  for (size_t k = 0; k < axis; ++k)
    outer *= result->shape[k];
  auto join = [&](auto member) {
    for (int64_t i = 0; i < outer; ++i)
      for (const Ref& part : all) {
        const auto& source = (*part).*member;
        const int64_t chunk = static_cast<int64_t>(source.size()) / std::max<int64_t>(outer, 1);
        ((*result).*member)
            .insert(((*result).*member).end(), source.begin() + i * chunk,
                    source.begin() + (i + 1) * chunk);
      }
  };
  if (result->kind == Kind::Integer)
    join(&Tensor::integers);
  else if (result->kind == Kind::Known)
    join(&Tensor::known);
  else
    join(&Tensor::reals);
  return result;
}

namespace {

Results same(Call& call) { return {call.in(0)}; }

/// Dropout, which is the identity unless its training mode may be on.
Results dropout(Call& call) {
  constexpr int64_t firstInference = 7; // earlier versions drop unless an attribute says otherwise
  constexpr unsigned trainingMode = 2;
  const Ref trains = call.in(trainingMode);
  if (call.version() < firstInference ||
      (trains && (!trains->isInteger() ||
                  llvm::any_of(trains->integers, [](int64_t isOn) { return isOn != 0; }))))
    return call.unsupported("it may drop elements");
  return {call.in(0)};
}

Results reshape(Call& call) {
  const Ref data = call.in(0);
  auto wanted = call.integers("shape", 1);
  if (!data || !wanted)
    return call.unsupported("its shape is unknown");
  const int64_t count =
      std::accumulate(data->shape.begin(), data->shape.end(), int64_t(1), std::multiplies<>());
  Extents shape;
  int64_t rest = -1;
  int64_t product = 1;
  for (size_t i = 0; i < wanted->size(); ++i) {
    int64_t extent = (*wanted)[i];
    if (extent == 0 && call.integer("allowzero", 0) == 0) {
      if (i >= data->shape.size())
        return call.fail("it copies an axis that the data does not have");
      extent = data->shape[i];
    }
    if (extent == -1)
      rest = static_cast<int64_t>(i);
    else
      product *= extent;
    shape.push_back(extent);
  }
  if (rest >= 0)
    shape[static_cast<size_t>(rest)] = product == 0 ? 0 : count / product;
  if (elementCount(shape) < 0 || (rest < 0 && product != count) ||
      (rest >= 0 && product * shape[static_cast<size_t>(rest)] != count))
    return call.fail("the shape has another number of elements");
  return {reshaped(data, std::move(shape))};
}

Results flatten(Call& call) {
  const Ref data = call.in(0);
  const int64_t axis = call.integer("axis", 1);
  const int64_t split = axis < 0 ? axis + data->rank() : axis;
  if (split < 0 || split > data->rank())
    return call.fail("its axis is out of range");
  Extents shape{1, 1};
  for (int64_t i = 0; i < data->rank(); ++i)
    shape[i < split ? 0 : 1] *= data->shape[static_cast<size_t>(i)];
  return {reshaped(data, std::move(shape))};
}

Results transpose(Call& call) {
  const Ref data = call.in(0);
  auto permutation = call.integers("perm");
  if (!permutation) {
    permutation.emplace(data->shape.size());
    std::iota(permutation->rbegin(), permutation->rend(), 0);
  }
  std::vector<int64_t> axes(data->shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (!std::is_permutation(axes.begin(), axes.end(), permutation->begin(), permutation->end()))
    return call.fail("its permutation does not fit the data");
  return {transposed(data, *permutation)};
}

Results unsqueeze(Call& call) {
  const Ref data = call.in(0);
  auto axes = call.integers("axes", 1);
  if (!axes)
    return call.unsupported("its axes are unknown");
  const int64_t rank = data->rank() + static_cast<int64_t>(axes->size());
  std::vector<bool> isNew(static_cast<size_t>(rank));
  for (int64_t axis : *axes) {
    auto at = axisOf(axis, rank);
    if (!at)
      return call.fail("an axis is out of range");
    isNew[*at] = true;
  }
  Extents shape;
  size_t from = 0;
  for (bool added : isNew) {
    if (!added && from >= data->shape.size())
      return call.fail("an axis occurs twice");
    shape.push_back(added ? 1 : data->shape[from++]);
  }
  return {reshaped(data, std::move(shape))};
}

Results squeeze(Call& call) {
  const Ref data = call.in(0);
  auto axes = call.integers("axes", 1);
  std::vector<bool> goes(data->shape.size());
  if (!axes)
    for (size_t i = 0; i < goes.size(); ++i)
      goes[i] = data->shape[i] == 1;
  else
    for (int64_t axis : *axes) {
      auto at = axisOf(axis, data->rank());
      if (!at || data->shape[*at] != 1)
        return call.fail("it removes an axis whose extent is not 1");
      goes[*at] = true;
    }
  Extents shape;
  for (size_t i = 0; i < goes.size(); ++i)
    if (!goes[i])
      shape.push_back(data->shape[i]);
  return {reshaped(data, std::move(shape))};
}

Results expand(Call& call) {
  const Ref data = call.in(0);
  const Ref wanted = call.in(1);
  if (!wanted || !wanted->isInteger())
    return call.unsupported("its shape is unknown");
  auto shape = broadcastShape(data->shape, wanted->integers);
  if (!shape || elementCount(*shape) < 0)
    return call.fail("the data does not broadcast to the shape");
  return {broadcastTo(data, *shape)};
}

Results tile(Call& call) {
  const Ref data = call.in(0);
  auto repeats = call.integers("repeats", 1);
  if (!repeats || repeats->size() != data->shape.size())
    return call.unsupported("its repeats are unknown");
  Extents shape = data->shape;
  for (size_t i = 0; i < shape.size(); ++i)
    if (__builtin_mul_overflow(shape[i], (*repeats)[i], &shape[i]))
      return call.unsupported("the result is too large");
  if (elementCount(shape) < 0)
    return call.unsupported("the result is too large");
  const Extents strides = stridesOf(data->shape);
  return {rearranged(data, std::move(shape), [&](llvm::ArrayRef<int64_t> place) {
    int64_t at = 0;
    for (size_t i = 0; i < place.size(); ++i)
      at += place[i] % data->shape[i] * strides[i];
    return at;
  })};
}

Results concat(Call& call) {
  std::vector<Ref> parts;
  for (const Ref& operand : call.operands)
    if (operand)
      parts.push_back(operand);
  auto axis = parts.empty() ? std::nullopt : axisOf(call.integer("axis", 0), parts[0]->rank());
  if (!axis)
    return call.fail("its axis is out of range");
  Ref joined = concatenated(call, parts, *axis);
  return joined ? Results{joined} : call.fail("shapes differ");
}

/// Indices that a slice of an axis takes.
struct Range {
  int64_t start = 0, step = 1, count = 0;
};

Range rangeOf(int64_t start, int64_t end, int64_t step, int64_t extent) {
  start += start < 0 ? extent : 0;
  end += end < 0 ? extent : 0;
  if (step > 0) {
    start = std::clamp<int64_t>(start, 0, extent);
    end = std::clamp<int64_t>(end, 0, extent);
    return {start, step, std::max<int64_t>(0, (end - start + step - 1) / step)};
  }
  start = std::clamp<int64_t>(start, -1, extent - 1);
  end = std::clamp<int64_t>(end, -1, extent - 1);
  return {start, step, std::max<int64_t>(0, (start - end - step - 1) / -step)};
}

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

void addMovementRules(RuleTable& rules) {
  rules["Identity"] = same;
  rules["Dropout"] = dropout;
  rules["Reshape"] = reshape;
  rules["Flatten"] = flatten;
  rules["Transpose"] = transpose;
  rules["Unsqueeze"] = unsqueeze;
  rules["Squeeze"] = squeeze;
  rules["Expand"] = expand;
  rules["Tile"] = tile;
  rules["Concat"] = concat;
  rules["Slice"] = slice;
  rules["Split"] = split;
  rules["Trilu"] = trilu;
  rules["Pad"] = pad;
}

} // namespace kvopt::check
