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
  result->growths.clear();
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
  }
  if (elementCount(result->shape) < 0)
    return nullptr;
  if (result->isHollow)
    return result;
  int64_t outer = 1;
  for (size_t k = 0; k < axis; ++k)
    outer *= result->shape[k];
  const bool grows = !result->isReal() &&
                     llvm::any_of(all, [](const Ref& part) { return !part->growths.empty(); });
  auto join = [&](auto member) {
    for (int64_t i = 0; i < outer; ++i)
      for (const Ref& part : all) {
        const auto& source = (*part).*member;
        const int64_t chunk = static_cast<int64_t>(source.size()) / std::max<int64_t>(outer, 1);
        for (int64_t k = 0; grows && k < chunk; ++k)
          result->growths.push_back(part->growth(static_cast<size_t>(i * chunk + k)));
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

std::optional<double> progression(const Tensor& data, unsigned axis) {
  const int64_t stride = stridesOf(data.shape)[axis];
  std::optional<double> apart;
  int64_t at = 0;
  bool isOne = data.isInteger() && data.growths.empty();
  forEachPlace(data.shape, [&](llvm::ArrayRef<int64_t> place) {
    const int64_t before = at++ - stride;
    if (!isOne || place[axis] == 0)
      return;
    const int64_t number = data.integers[static_cast<size_t>(before + stride)];
    const int64_t last = data.integers[static_cast<size_t>(before)];
    constexpr int64_t most = int64_t(1) << 52; // of numbers that a double holds
    isOne = number > -most && number < most && last > -most && last < most;
    if (!isOne)
      return;
    isOne = !apart || *apart == double(number - last);
    apart = double(number - last);
  });
  return isOne ? std::optional(apart.value_or(0)) : std::nullopt;
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
  for (unsigned i = 0; i < call.operands.size(); ++i)
    if (const Ref operand = call.in(i))
      parts.push_back(operand);
  auto axis = parts.empty() ? std::nullopt : axisOf(call.integer("axis", 0), parts[0]->rank());
  if (!axis)
    return call.fail("its axis is out of range");
  Ref joined = concatenated(call, parts, *axis);
  return joined ? Results{joined} : call.fail("shapes differ");
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
}

} // namespace kvopt::check
