// Operators that give elements another shape or another place.
#include "tests/differential/operators.h"

#include <algorithm>

namespace kvopt::differential {
using namespace ir;

namespace {

/// Axes as an attribute in old versions and as an operand in new ones.
void addAxes(Instance& instance, std::vector<int64_t> axes, bool asOperand) {
  if (asOperand)
    instance.select(std::move(axes));
  else
    instance.attr("axes", std::move(axes));
}

Instance reshape(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({5, 13, 14, 19}));
  const bool keepsZero = instance.opset >= 14 && dice.oneIn(3);
  const Extents before = dice.extents(0, 4);
  instance.in(distinct(dice, {anyType(dice), before}));
  const int64_t count = countOf(before);
  // The extents in other groups: each extent joins the axis before it, or makes a new one.
  std::vector<int64_t> wanted;
  for (int64_t extent : before)
    if (!wanted.empty() && dice.oneIn(3))
      wanted.back() *= extent;
    else if (extent == 4 && dice.oneIn(2))
      wanted.insert(wanted.end(), {2, 2});
    else
      wanted.push_back(extent);
  if (dice.oneIn(3))
    wanted.insert(wanted.begin() + dice.between(0, int64_t(wanted.size())), 1);
  std::vector<int64_t> written = wanted;
  const bool hasZero = std::count(wanted.begin(), wanted.end(), 0) != 0;
  for (size_t i = 0; !keepsZero && i < wanted.size(); ++i)
    if (i < before.size() && wanted[i] == before[i] && (wanted[i] == 0 || dice.oneIn(4)))
      written[i] = 0;
  for (size_t i = 0; i < wanted.size() && !keepsZero; ++i)
    if (wanted[i] == 0 && (i >= before.size() || before[i] != 0)) {
      // Only an axis that is copied, or the one that is left open, can be 0.
      written = wanted;
      written.assign(1, hasZero || count == 0 ? -1 : count);
      break;
    }
  if (!hasZero && !written.empty() && dice.oneIn(2))
    written[dice.below(written.size())] = -1;
  instance.select(std::move(written));
  if (keepsZero)
    instance.attr("allowzero", int64_t{1});
  else if (instance.opset >= 14 && dice.oneIn(4))
    instance.attr("allowzero", int64_t{0});
  return instance;
}

Instance flatten(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 13, 21}));
  const Extents extents = dice.extents(0, 4);
  const auto rank = static_cast<int64_t>(extents.size());
  instance.in(distinct(dice, {anyType(dice), extents}));
  if (rank == 0 || !dice.oneIn(3))
    instance.attr("axis", dice.between(-rank, rank));
  return instance;
}

Instance transpose(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({1, 13, 21}));
  const Extents extents = dice.extents(0, 4);
  instance.in(distinct(dice, {anyType(dice), extents}));
  if (!dice.oneIn(4))
    instance.attr("perm", dice.shuffled(extents.size()));
  return instance;
}

Instance squeeze(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 13, 21}));
  const Extents extents = dice.extents(0, 4);
  std::vector<int64_t> axes;
  for (int64_t axis : dice.axes(extents.size()))
    if (extents[static_cast<size_t>(axis < 0 ? axis + int64_t(extents.size()) : axis)] == 1)
      axes.push_back(axis);
  instance.in(distinct(dice, {anyType(dice), extents}));
  if (!axes.empty() || dice.oneIn(8))
    addAxes(instance, std::move(axes), instance.opset >= 13);
  return instance;
}

Instance unsqueeze(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 13, 21}));
  const Extents extents = dice.extents(0, 3);
  const auto added = static_cast<size_t>(dice.between(1, 2));
  const auto rank = static_cast<int64_t>(extents.size() + added);
  std::vector<int64_t> axes = dice.shuffled(static_cast<size_t>(rank));
  axes.resize(added);
  for (int64_t& axis : axes)
    axis -= dice.oneIn(2) ? rank : 0;
  instance.in(distinct(dice, {anyType(dice), extents}));
  addAxes(instance, std::move(axes), instance.opset >= 13);
  return instance;
}

Instance expand(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({8, 13}));
  const auto extents = broadcastExtents(dice, 2);
  return instance.in(distinct(dice, {anyType(dice), extents[0]})).select(extents[1]);
}

Instance tile(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({6, 13}));
  const Extents extents = dice.extents(0, 3);
  std::vector<int64_t> repeats;
  for (size_t i = 0; i < extents.size(); ++i)
    repeats.push_back(dice.oneIn(10) ? 0 : dice.between(1, 3));
  return instance.in(distinct(dice, {anyType(dice), extents})).select(std::move(repeats));
}

Instance concat(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 13}));
  Extents extents = dice.extents(1, 4);
  const int64_t axis = dice.axis(extents.size());
  const ElementType type = anyType(dice);
  for (int64_t parts = dice.between(1, 4); parts > 0; --parts) {
    extents[static_cast<size_t>(axis < 0 ? axis + int64_t(extents.size()) : axis)] = dice.extent();
    instance.in(distinct(dice, {type, extents}));
  }
  return instance.attr("axis", axis);
}

Instance split(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({2, 11, 13, 18}));
  Extents extents = dice.extents(1, 3);
  const int64_t axis = instance.opset < 11 ? dice.between(0, int64_t(extents.size()) - 1)
                                           : dice.axis(extents.size());
  int64_t& extent = extents[static_cast<size_t>(axis < 0 ? axis + int64_t(extents.size()) : axis)];
  instance.results = static_cast<unsigned>(dice.between(1, 3));
  const auto parts = static_cast<int64_t>(instance.results);
  std::vector<int64_t> lengths;
  if (dice.oneIn(2)) {
    extent = 0;
    for (int64_t i = 0; i < parts; ++i) {
      lengths.push_back(dice.extent());
      extent += lengths.back();
    }
  } else if (instance.opset < 18) {
    extent = parts * dice.between(0, 2);
  } else {
    // Chunks of ceil(extent / parts), of which the last may be smaller.
    const int64_t chunk = dice.between(1, 3);
    extent = chunk * (parts - 1) + dice.between(1, chunk);
    if ((extent + parts - 1) / parts != chunk)
      extent = chunk * parts;
    instance.attr("num_outputs", parts);
  }
  instance.in(distinct(dice, {anyType(dice), extents}));
  if (!lengths.empty() && instance.opset >= 13)
    instance.select(std::move(lengths));
  else if (!lengths.empty())
    instance.attr("split", std::move(lengths));
  if (axis != 0 || dice.oneIn(2))
    instance.attr("axis", axis);
  return instance;
}

Instance triangle(const char* name, Dice& dice) {
  Instance instance(name, 14);
  instance.in(distinct(dice, {anyType(dice), dice.extents(2, 4)}));
  if (!dice.oneIn(3))
    instance.select(scalarOf(ElementType::Int64, static_cast<Number>(dice.between(-4, 4))));
  if (!dice.oneIn(3))
    instance.attr("upper", dice.between(0, 1));
  return instance;
}

Instance shapeOf(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({1, 13, 15, 21}));
  const Extents extents = dice.extents(0, 4);
  const auto rank = static_cast<int64_t>(extents.size());
  for (const char* bound : {"start", "end"})
    if (instance.opset >= 15 && dice.oneIn(2))
      instance.attr(bound, dice.between(-rank - 2, rank + 2));
  return instance.in(distinct(dice, {anyType(dice), extents}));
}

Instance sizeOf(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({1, 13, 21}));
  return instance.in(distinct(dice, {anyType(dice), dice.extents(0, 4)}));
}

constexpr Operator operators[] = {
    {"Reshape", reshape},     {"Flatten", flatten}, {"Transpose", transpose}, {"Squeeze", squeeze},
    {"Unsqueeze", unsqueeze}, {"Expand", expand},   {"Tile", tile},           {"Concat", concat},
    {"Split", split},         {"Trilu", triangle},  {"Shape", shapeOf},       {"Size", sizeOf},
};

} // namespace

llvm::ArrayRef<Operator> movementOperators() { return operators; }

} // namespace kvopt::differential
