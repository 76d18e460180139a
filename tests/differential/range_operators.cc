// Operators that take or add ranges of axes, and those that make tensors of a shape.
#include "tests/differential/operators.h"

#include <limits>
#include <numeric>

namespace kvopt::differential {
using namespace ir;

namespace {

int64_t bound(Dice& dice) {
  using Limits = std::numeric_limits<int64_t>;
  return dice.oneIn(8) ? dice.anyOf<int64_t>({Limits::min(), Limits::max(), INT32_MAX, INT32_MIN})
                       : dice.between(-6, 6);
}

Instance slice(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({1, 10, 11, 13}));
  const Extents extents = dice.extents(1, 4);
  const auto rank = static_cast<int64_t>(extents.size());
  const bool hasAxes = !dice.oneIn(4);
  std::vector<int64_t> axes = hasAxes ? dice.axes(extents.size()) : std::vector<int64_t>();
  for (int64_t& axis : axes)
    axis += instance.opset < 11 && axis < 0 ? rank : 0;
  const size_t count = hasAxes ? axes.size() : static_cast<size_t>(dice.between(0, rank));
  std::vector<int64_t> starts, ends, steps;
  for (size_t i = 0; i < count; ++i) {
    starts.push_back(dice.oneIn(4) ? 0 : bound(dice));
    ends.push_back(dice.oneIn(4) ? std::numeric_limits<int64_t>::max() : bound(dice));
    steps.push_back(dice.oneIn(8) ? bound(dice) : dice.anyOf<int64_t>({1, 1, 2, 3, -1, -2, -3}));
    if (steps.back() == 0)
      steps.back() = 1;
  }
  instance.in(distinct(dice, {anyType(dice), extents}));
  if (instance.opset < 10) {
    instance.attr("starts", std::move(starts)).attr("ends", std::move(ends));
    if (hasAxes)
      instance.attr("axes", std::move(axes));
    return instance;
  }
  const bool isNarrow = dice.oneIn(4);
  auto list = [&](std::vector<int64_t> numbers) {
    for (int64_t& number : numbers)
      if (isNarrow)
        number = std::max<int64_t>(INT32_MIN, std::min<int64_t>(INT32_MAX, number));
    instance.select(listOf(isNarrow ? ElementType::Int32 : ElementType::Int64, numbers));
  };
  list(starts);
  list(ends);
  const bool hasSteps = !dice.oneIn(3);
  if (hasAxes)
    list(axes);
  else if (hasSteps)
    instance.absent();
  if (hasSteps)
    list(steps);
  return instance;
}

/// Numbers of entries before and after each axis. `most` limits those that are added.
std::vector<int64_t> padsOf(Dice& dice, const Extents& extents, const std::string& mode) {
  std::vector<int64_t> pads(2 * extents.size());
  for (size_t i = 0; i < extents.size(); ++i) {
    int64_t most = 3;
    if (mode == "reflect")
      most = std::max<int64_t>(0, extents[i] - 1);
    else if (mode == "edge" && extents[i] == 0)
      most = 0;
    for (size_t side : {i, i + extents.size()})
      pads[side] = dice.between(0, most);
    const size_t side = dice.oneIn(2) ? i : i + extents.size();
    if (dice.oneIn(4) && extents[i] > 0 && mode != "wrap")
      pads[side] = -dice.between(0, mode == "constant" ? extents[i] : 1);
    if (mode == "reflect" && (pads[i] < 0 || pads[i + extents.size()] < 0))
      pads[i] = pads[i + extents.size()] = 0;
    if (mode == "wrap" && extents[i] == 0)
      pads[i] = pads[i + extents.size()] = 0;
  }
  return pads;
}

Instance pad(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({2, 11, 13, 18, 19, 21}));
  const std::string mode =
      dice.oneIn(2) ? "constant"
                    : dice.anyOf({"reflect", "edge", instance.opset >= 19 ? "wrap" : "edge"});
  Extents extents = dice.extents(1, 3);
  const bool hasAxes = instance.opset >= 18 && dice.oneIn(2);
  std::vector<int64_t> axes = hasAxes ? dice.axes(extents.size()) : std::vector<int64_t>();
  Extents padded = extents;
  if (hasAxes) {
    padded.clear();
    for (int64_t axis : axes)
      padded.push_back(
          extents[static_cast<size_t>(axis < 0 ? axis + int64_t(extents.size()) : axis)]);
  }
  std::vector<int64_t> pads = padsOf(dice, padded, mode);
  const ElementType type = instance.opset < 11   ? ElementType::Float
                           : instance.opset < 13 ? numericType(dice)
                                                 : anyType(dice);
  instance.in(distinct(dice, {type, extents}));
  if (mode != "constant" || dice.oneIn(2))
    instance.attr("mode", mode.c_str());
  if (instance.opset < 11) {
    return dice.oneIn(2) ? instance.attr("pads", std::move(pads))
                         : instance.attr("pads", std::move(pads)).attr("value", 7.0f);
  }
  instance.select(std::move(pads));
  const bool hasFill = mode == "constant" && dice.oneIn(2);
  if (hasFill)
    instance.select(scalarOf(type, 1));
  else if (hasAxes)
    instance.absent();
  if (hasAxes)
    instance.select(std::move(axes));
  return instance;
}

Instance range(const char* name, Dice& dice) {
  using enum ElementType;
  const ElementType type = dice.anyOf({Float, Double, Int64, Int64, Int32, Int16});
  Instance instance(name, 11);
  int64_t step = dice.between(-3, 3);
  step = step == 0 ? 1 : step;
  const Number unit = isFloatingPoint(type) && dice.oneIn(2) ? dice.anyOf<Number>({0.25, 0.1}) : 1;
  for (int64_t number : {dice.between(-6, 6), dice.between(-6, 6), step})
    instance.select(scalarOf(type, unit * static_cast<Number>(number)));
  return instance.rounded(2);
}

Instance constantOfShape(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({9, 20, 21}));
  instance.select(dice.extents(0, 3));
  if (!dice.oneIn(4)) {
    const Numbers value = integers(dice, {anyType(dice), {1}}, -3, 3);
    instance.attr("value", Attribute::ofTensor(llvm::cantFail(
                               makeTensor(value.type, value.extents, bytesOf(value)))));
  }
  return instance;
}

constexpr Operator operators[] = {
    {"Slice", slice},
    {"Pad", pad},
    {"Range", range},
    {"ConstantOfShape", constantOfShape},
};

} // namespace

llvm::ArrayRef<Operator> rangeOperators() { return operators; }

} // namespace kvopt::differential
