// Rules of operators that make integers of shapes and ranges.
#include "check/arithmetic/call.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace kvopt::check {
namespace {

Results shapeOf(Call& call) {
  const Ref data = call.in(0);
  const int64_t rank = data->rank();
  auto bound = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  std::vector<int64_t> extents;
  for (int64_t i = bound(call.integer("start", 0)), end = bound(call.integer("end", rank)); i < end;
       ++i)
    extents.push_back(data->shape[static_cast<size_t>(i)]);
  const auto count = static_cast<int64_t>(extents.size());
  auto result = std::make_shared<Tensor>(*integerTensor({count}, std::move(extents)));
  if (!data->extentGrowths.empty())
    for (int64_t i = 0; i < count; ++i)
      result->growths.push_back(
          data->extentGrowth(static_cast<size_t>(bound(call.integer("start", 0)) + i)));
  return {result};
}

Results sizeOf(Call& call) {
  const Ref data = call.in(0);
  int64_t count = 1;
  Growths::Number total{fixedGrowth, 1};
  for (size_t i = 0; i < data->shape.size(); ++i) {
    total.id = call.math.growths.product(total, data->extent(i));
    total.value = double(count *= data->shape[i]);
  }
  auto result = std::make_shared<Tensor>(*integerScalar(count));
  if (total.id != fixedGrowth)
    result->growths = {total.id};
  return {result};
}

Results constant(Call& call) {
  if (const ir::Attribute* value = call.attribute("value");
      value && value->kind() == ir::AttributeKind::Tensor) {
    Ref tensor = tensorOf(*value->tensorValue());
    return tensor ? Results{tensor} : call.unsupported("its contents are not numbers");
  }
  auto result = std::make_shared<Tensor>();
  result->isConstant = true;
  result->kind = Kind::Integer;
  result->type = ir::ElementType::Int64;
  if (const ir::Attribute* value = call.attribute("value_int")) {
    result->integers = {value->intValue()};
    return {result};
  }
  if (auto values = call.integers("value_ints")) {
    result->shape = {static_cast<int64_t>(values->size())};
    result->integers = std::move(*values);
    return {result};
  }
  result->kind = Kind::Known;
  result->type = ir::ElementType::Float;
  if (const ir::Attribute* value = call.attribute("value_float")) {
    result->known = {value->floatValue()};
    return {result};
  }
  if (const ir::Attribute* value = call.attribute("value_floats")) {
    result->known.assign(value->floats().begin(), value->floats().end());
    result->shape = {static_cast<int64_t>(result->known.size())};
    return {result};
  }
  return call.unsupported("its contents are not numbers");
}

Results constantOfShape(Call& call) {
  if (!call.in(0) || !call.in(0)->isInteger())
    return call.unsupported("its shape is unknown");
  auto result = std::make_shared<Tensor>();
  result->kind = Kind::Known;
  result->known = {0};
  if (const ir::Attribute* value = call.attribute("value");
      value && value->kind() == ir::AttributeKind::Tensor) {
    Ref tensor = tensorOf(*value->tensorValue());
    if (!tensor || tensor->count() != 1)
      return call.unsupported("its value is not a number");
    *result = *tensor;
  }
  result->shape = {};
  Extents shape(call.in(0)->integers.begin(), call.in(0)->integers.end());
  if (elementCount(shape) < 0)
    return call.unsupported("the result is too large");
  return {broadcastTo(result, shape)};
}

/// The growths of a range's numbers and of how many there are.
void traceRange(Call& call, Tensor& result) {
  const Growths::Number start = call.in(0)->number(0), limit = call.in(1)->number(0),
                        step = call.in(2)->number(0);
  Growths& growths = call.math.growths;
  if (start.id == fixedGrowth && limit.id == fixedGrowth && step.id == fixedGrowth)
    return;
  auto named = [&](GrowthId id) {
    return growths.of(growths.stored(id, result.type), {start.id, limit.id, step.id},
                      [&] { return call.node.describe(); });
  };
  const GrowthId span =
      step.value > 0 ? growths.sum(limit, start, -1) : growths.sum(start, limit, -1);
  const Growths::Number each{step.id, std::abs(step.value)};
  const auto count = static_cast<size_t>(result.count());
  const bool isOne = step.id == fixedGrowth && each.value == 1 &&
                     (result.isInteger() || growths.at(span).isIntegral());
  const GrowthId ofCount =
      isOne ? span
      : step.id == fixedGrowth && result.isInteger()
          ? growths.quotient({span, std::abs(limit.value - start.value)}, each, true)
          : growths.untraced("counts numbers that are not integers");
  if (!isOne && result.isInteger())
    call.noteSteps({span, std::abs(limit.value - start.value)}, each.value);
  result.extentGrowths = {named(count == 0 ? span : ofCount)};
  const bool rises = step.value > 0;
  const GrowthId number =
      step.id == fixedGrowth
          ? growths.bound({growths.indexed(start.id, start.value, step.value), start.value}, limit,
                          !rises)
          : growths.untraced("has a step that depends on sizes");
  result.growths.assign(count, named(number));
}

Results range(Call& call) {
  const Ref start = call.in(0), limit = call.in(1), step = call.in(2);
  if (!start || !limit || !step || start->isReal() || limit->kind != start->kind ||
      step->kind != start->kind)
    return call.unsupported("its bounds are unknown");
  if (start->count() != 1 || limit->count() != 1 || step->count() != 1)
    return call.fail("its bounds are not single numbers");
  if (start->isInteger()) {
    const int64_t first = start->integers[0], by = step->integers[0];
    call.noteThreshold(limit, start, /*meets=*/false);
    call.noteThreshold(step, integerScalar(0), /*meets=*/false);
    std::vector<int64_t> values;
    const double steps =
        by ? std::ceil((double(limit->integers[0]) - double(first)) / double(by)) : INFINITY;
    if (steps > double(mostElements))
      return call.unsupported("it has too many elements");
    for (int64_t i = 0; double(i) < steps; ++i)
      values.push_back(first + i * by);
    const auto count = static_cast<int64_t>(values.size());
    auto result = std::make_shared<Tensor>(*integerTensor({count}, std::move(values), start->type));
    traceRange(call, *result);
    return {result};
  }
  auto result = std::make_shared<Tensor>();
  result->kind = Kind::Known;
  const double count = std::ceil((limit->known[0] - start->known[0]) / step->known[0]);
  if (!(count <= double(mostElements)))
    return call.unsupported("it has too many elements");
  for (int64_t i = 0; double(i) < count; ++i)
    result->known.push_back(start->known[0] + double(i) * step->known[0]);
  result->shape = {static_cast<int64_t>(result->known.size())};
  call.noteThreshold(limit, start, /*meets=*/false);
  traceRange(call, *result);
  return {result};
}

/// A sum of equal constants, or of truths, rises by one of them with the index. Other sums are only
/// traced along an axis that does not grow, of constants.
void traceCumSum(Call& call, unsigned axis, Tensor& result) {
  const Tensor& data = *call.in(0);
  Growths& growths = call.math.growths;
  result.growths.clear();
  if (data.growths.empty() && data.extentGrowths.empty() && call.in(1)->growths.empty())
    return;
  const auto [least, most] = std::minmax_element(data.integers.begin(), data.integers.end());
  const bool isEmpty = data.integers.empty();
  const bool areTruths = isEmpty || (*least >= 0 && *most <= 1);
  if (data.growths.empty() && data.extentGrowth(axis) == fixedGrowth)
    return;
  GrowthId id = growths.untraced(call.node.describe() + " sums numbers that depend on sizes");
  const bool isUniform = isEmpty || *least == *most;
  if (data.growths.empty() && (areTruths || isUniform)) {
    id = growths.indexed(fixedGrowth, 0, isUniform && !isEmpty ? double(*most) : 1);
    if (!isUniform) { // all but some before it, which no size determines
      const GrowthId others = growths.count("falsehoods before " + call.node.describe());
      id = growths.sum({id, 0}, {others, 0}, -1);
    }
    id = growths.stored(id, data.type);
  }
  result.growths.assign(static_cast<size_t>(result.count()), id);
  if (!areTruths || isUniform || !growths.at(id).isTraced())
    return;
  // A sum that has the truth of its own place is at least 1.
  const bool isExclusive = call.integer("exclusive", 0) != 0;
  for (size_t i = 0; i < result.growths.size(); ++i)
    result.growths[i] = growths.bound(
        {id, 1}, {fixedGrowth, !isExclusive && data.integers[i] != 0 ? 1.0 : 0.0}, true);
}

Results cumSum(Call& call) {
  const Ref data = call.in(0);
  if (!data->isInteger() || !call.in(1) || call.in(1)->integers.empty() ||
      call.integer("reverse", 0) != 0)
    return call.unsupported("it is only known for integers");
  auto axis = axisOf(call.in(1)->integers[0], data->rank());
  if (!axis)
    return call.fail("its axis is out of range");
  auto result = std::make_shared<Tensor>(*data);
  const int64_t stride = stridesOf(data->shape)[*axis];
  const bool isExclusive = call.integer("exclusive", 0) != 0;
  int64_t at = 0;
  forEachPlace(data->shape, [&](llvm::ArrayRef<int64_t> place) {
    const auto i = static_cast<size_t>(at);
    const auto before = static_cast<size_t>(at - stride);
    const int64_t own =
        isExclusive ? (place[*axis] ? data->integers[before] : 0) : data->integers[i];
    const int64_t earlier = place[*axis] ? result->integers[before] : 0;
    result->integers[i] = static_cast<int64_t>(uint64_t(own) + uint64_t(earlier));
    ++at;
  });
  traceCumSum(call, *axis, *result);
  return {result};
}

} // namespace

void addIntegerRules(RuleTable& rules) {
  rules["Shape"] = shapeOf;
  rules["Size"] = sizeOf;
  rules["Constant"] = constant;
  rules["ConstantOfShape"] = constantOfShape;
  rules["Range"] = range;
  rules["CumSum"] = cumSum;
}

} // namespace kvopt::check
