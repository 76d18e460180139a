// Operators that read or write elements at indices.
#include "tests/differential/operators.h"

#include <algorithm>
#include <set>

namespace kvopt::differential {
using namespace ir;

namespace {

size_t placeOf(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

ElementType indexType(Dice& dice) {
  return dice.oneIn(3) ? ElementType::Int32 : ElementType::Int64;
}

/// Indices into an axis of `extent` entries, from either end. Of an axis without entries, there are
/// none.
Numbers indicesInto(Dice& dice, Wanted wanted, int64_t extent) {
  if (extent == 0)
    wanted.extents.assign(std::max<size_t>(wanted.extents.size(), 1), 0);
  return integers(dice, std::move(wanted), -extent, std::max<int64_t>(extent, 1) - 1);
}

Instance gather(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 13}));
  const Extents extents = dice.extents(1, 3);
  const int64_t axis = dice.axis(extents.size());
  instance.in(distinct(dice, {anyType(dice), extents}));
  instance.select(indicesInto(dice, {indexType(dice), dice.extents(0, 2)},
                              extents[placeOf(axis, extents.size())]));
  if (axis != 0 || dice.oneIn(2))
    instance.attr("axis", axis);
  return instance;
}

/// Extents of indices: at most those of the data, except along `axis`.
Extents within(Dice& dice, const Extents& data, size_t axis) {
  Extents extents = data;
  for (size_t i = 0; i < extents.size(); ++i)
    extents[i] = i == axis ? (data[i] == 0 ? 0 : dice.between(0, 4))
                           : (dice.oneIn(2) ? data[i] : dice.between(0, data[i]));
  return extents;
}

Instance gatherElements(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 13}));
  const Extents extents = dice.extents(1, 3);
  const int64_t axis = dice.axis(extents.size());
  const size_t place = placeOf(axis, extents.size());
  const int64_t extent = extents[place];
  instance.in(distinct(dice, {anyType(dice), extents}));
  instance.select(integers(dice, {indexType(dice), within(dice, extents, place)}, -extent,
                           std::max<int64_t>(extent, 1) - 1));
  if (axis != 0 || dice.oneIn(2))
    instance.attr("axis", axis);
  return instance;
}

/// Points on the axes of the data from `first` on: the last axis has one index for each of `width`
/// axes.
Numbers pointsInto(Dice& dice, const Extents& data, size_t first, size_t width, Extents before) {
  bool isEmpty = false;
  for (size_t i = first; i < first + width; ++i)
    isEmpty |= data[i] == 0;
  if (isEmpty && before.size() > first)
    before.back() = 0;
  before.push_back(static_cast<int64_t>(width));
  Numbers points = integers(dice, {ElementType::Int64, before}, 0, 0);
  for (size_t i = 0; i < points.elements.size(); ++i) {
    const int64_t extent = data[first + i % width];
    points.elements[i] = static_cast<Number>(extent == 0 ? 0 : dice.between(-extent, extent - 1));
  }
  return points;
}

Instance gatherPoints(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({12, 13}));
  Extents extents = dice.extents(1, 4);
  const size_t batches = dice.oneIn(2) ? 0 : dice.below(extents.size());
  const auto width = static_cast<size_t>(dice.between(1, int64_t(extents.size() - batches)));
  for (size_t i = batches; i < batches + width; ++i)
    extents[i] = std::max<int64_t>(extents[i], 1);
  Extents before(extents.begin(), extents.begin() + static_cast<long>(batches));
  for (int64_t extent : dice.extents(0, 2))
    before.push_back(extent);
  instance.in(distinct(dice, {anyType(dice), extents}));
  instance.select(pointsInto(dice, extents, batches, width, std::move(before)));
  if (batches != 0 || dice.oneIn(3))
    instance.attr("batch_dims", static_cast<int64_t>(batches));
  return instance;
}

/// A reduction that the version has, or none. Where places are written twice, a sum or a bound.
void addReduction(Instance& instance, Dice& dice, bool hasDuplicates) {
  const char* reduction =
      hasDuplicates ? instance.opset >= 18 ? dice.anyOf({"add", "mul", "max", "min"}) : "add"
      : instance.opset >= 18 ? dice.anyOf({"none", "none", "add", "mul", "max", "min"})
      : instance.opset >= 16 ? dice.anyOf({"none", "none", "add", "mul"})
                             : "none";
  if (std::string(reduction) != "none" || (instance.opset >= 16 && dice.oneIn(2)))
    instance.attr("reduction", reduction);
  if (std::string(reduction).front() == 'm')
    instance.opaque();
}

Instance scatterElements(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 13, 16, 18, 18}));
  const Extents extents = dice.extents(1, 3);
  const int64_t axis = dice.axis(extents.size());
  const size_t place = placeOf(axis, extents.size());
  Extents written = within(dice, extents, place);
  const bool repeats = instance.opset >= 16 && dice.oneIn(3);
  if (!repeats)
    written[place] = std::min(written[place], extents[place]);
  Numbers indices = integers(dice, {indexType(dice), written}, 0, 0);
  // The entries of each line are different unless places are to be written twice.
  int64_t stride = 1;
  for (size_t i = place + 1; i < written.size(); ++i)
    stride *= written[i];
  for (int64_t start = 0; start < indices.count(); ++start) {
    if (written[place] == 0 || start / stride % written[place] != 0)
      continue;
    const std::vector<int64_t> order = dice.shuffled(static_cast<size_t>(extents[place]));
    for (int64_t i = 0; i < written[place]; ++i) {
      const int64_t entry =
          repeats ? dice.between(0, extents[place] - 1) : order[static_cast<size_t>(i)];
      indices.elements[static_cast<size_t>(start + i * stride)] =
          static_cast<Number>(dice.oneIn(3) ? entry - extents[place] : entry);
    }
  }
  const ElementType type = repeats ? numericType(dice) : anyType(dice);
  const bool reduces = type != ElementType::Bool;
  instance.in(integers(dice, {type, extents}, 1, 3)).select(std::move(indices));
  instance.in(integers(dice, {type, written}, 1, 4));
  if (reduces)
    addReduction(instance, dice, repeats);
  if (axis != 0 || dice.oneIn(2))
    instance.attr("axis", axis);
  return instance;
}

Instance scatterPoints(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 13, 16, 18, 18}));
  Extents extents = dice.extents(1, 3);
  const auto width = static_cast<size_t>(dice.between(1, int64_t(extents.size())));
  for (size_t i = 0; i < width; ++i)
    extents[i] = std::max<int64_t>(extents[i], 1);
  const Extents before = dice.extents(0, 2);
  Numbers points = pointsInto(dice, extents, 0, width, before);
  std::set<std::vector<int64_t>> seen;
  bool repeats = false;
  for (size_t first = 0; first < points.elements.size(); first += width) {
    std::vector<int64_t> point;
    for (size_t i = 0; i < width; ++i) {
      const auto index = static_cast<int64_t>(points.elements[first + i]);
      point.push_back(index < 0 ? index + extents[i] : index);
    }
    repeats |= !seen.insert(point).second;
  }
  if (repeats && instance.opset < 16)
    instance.opset = 18;
  Extents written = before;
  written.insert(written.end(), extents.begin() + static_cast<long>(width), extents.end());
  const ElementType type = repeats || !dice.oneIn(4) ? numericType(dice) : ElementType::Bool;
  instance.in(integers(dice, {type, extents}, 1, 3)).select(std::move(points));
  instance.in(integers(dice, {type, written}, 1, 4));
  if (type != ElementType::Bool)
    addReduction(instance, dice, repeats);
  return instance;
}

Instance scatterRows(const char* name, Dice& dice) {
  Instance instance(name, 24);
  const ElementType type = floatType(dice);
  Extents extents = dice.extents(3, 4);
  const bool isFirst = dice.oneIn(3);
  const int64_t axis = isFirst ? 1 : -2;
  const size_t place = placeOf(axis, extents.size());
  for (int64_t& extent : extents)
    extent = std::max<int64_t>(extent, 1);
  Extents fresh = extents;
  fresh[place] = dice.between(1, extents[place]);
  instance.in(distinct(dice, {type, extents})).in(varied(dice, {type, fresh}));
  const bool isCircular = dice.oneIn(3);
  if (!dice.oneIn(4))
    instance.select(integers(dice, {ElementType::Int64, {extents[0]}}, 0,
                             isCircular ? extents[place] - 1 : extents[place] - fresh[place]));
  if (isFirst || dice.oneIn(2))
    instance.attr("axis", axis);
  if (isCircular || dice.oneIn(3))
    instance.attr("mode", isCircular ? "circular" : "linear");
  return instance;
}

Instance oneHot(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({9, 11}));
  const Extents extents = dice.extents(1, 2);
  const auto rank = static_cast<int64_t>(extents.size());
  const int64_t depth = dice.between(1, 4);
  const ElementType type = anyType(dice);
  const ElementType indices = dice.oneIn(5) ? ElementType::Float : indexType(dice);
  instance.select(integers(dice, {indices, extents}, -depth - 2, depth + 1));
  const Numbers count = scalarOf(ElementType::Int64, static_cast<Number>(depth));
  instance.select(dice.oneIn(2) ? count : Numbers{count.type, {1}, count.elements});
  instance.select(distinct(dice, {type, {2}}));
  if (!dice.oneIn(3))
    instance.attr("axis", dice.between(-rank - 1, rank));
  return instance;
}

Instance nonZero(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({9, 13}));
  return instance.select(integers(dice, {anyType(dice), dice.extents(1, 3)}, 0, 1));
}

constexpr Operator operators[] = {
    {"Gather", gather},           {"GatherElements", gatherElements},
    {"GatherND", gatherPoints},   {"ScatterElements", scatterElements},
    {"ScatterND", scatterPoints}, {"TensorScatter", scatterRows},
    {"OneHot", oneHot},           {"NonZero", nonZero},
};

} // namespace

llvm::ArrayRef<Operator> indexOperators() { return operators; }

} // namespace kvopt::differential
