// Rules of reductions, softmax and normalizations.
#include "check/rules/elementwise.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace kvopt::check {
namespace {

/// Axes that a reduction combines, and where each element goes.
struct Reduction {
  Extents shape;               ///< of the result
  Extents kept;                ///< of the result, with reduced axes as 1
  std::vector<size_t> targets; ///< for each element, its element of the result
  int64_t combined = 1;        ///< number of elements in each
  std::vector<bool> goes;      ///< for each axis, whether it is combined
};

std::optional<Reduction> reductionOf(const Ref& data, llvm::ArrayRef<int64_t> axes, bool keeps) {
  Reduction result;
  std::vector<bool>& goes = result.goes;
  goes.resize(data->shape.size());
  for (int64_t axis : axes) {
    auto at = axisOf(axis, data->rank());
    if (!at)
      return std::nullopt;
    goes[*at] = true;
  }
  for (size_t i = 0; i < goes.size(); ++i) {
    result.kept.push_back(goes[i] ? 1 : data->shape[i]);
    if (goes[i])
      result.combined *= data->shape[i];
    if (!goes[i] || keeps)
      result.shape.push_back(result.kept.back());
  }
  if (data->isHollow)
    return result;
  const Extents strides = stridesOf(result.kept);
  forEachPlace(data->shape, [&](llvm::ArrayRef<int64_t> place) {
    int64_t at = 0;
    for (size_t i = 0; i < place.size(); ++i)
      at += goes[i] ? 0 : place[i] * strides[i];
    result.targets.push_back(static_cast<size_t>(at));
  });
  return result;
}

Ref reducedReals(Call& call, const Ref& data, const Reduction& reduction, bool isBound,
                 llvm::StringRef name) {
  // A mean or a bound of no elements is not a number.
  if (data->isHollow)
    return hollowTensor(reduction.shape,
                        data->isSpecial || (reduction.combined == 0 && name != "Sum"));
  auto result = std::make_shared<Tensor>();
  result->shape = reduction.shape;
  const auto count = static_cast<size_t>(result->count());
  if (isBound) {
    std::vector<ExactBound> bounds(count, ExactBound(call.field(), name == "Max"));
    for (size_t i = 0; i < data->reals.size(); ++i)
      bounds[reduction.targets[i]].add(data->reals[i]);
    for (const ExactBound& bound : bounds) {
      result->reals.push_back(bound.bound());
      if (bound.assumesFills())
        call.math.assumptions.insert(withinFills);
    }
    return result;
  }
  std::vector<std::vector<size_t>> members(count);
  for (size_t i = 0; i < data->reals.size(); ++i)
    members[reduction.targets[i]].push_back(i);
  for (const std::vector<size_t>& group : members) {
    ExactSum sum(call.field());
    for (size_t i : group)
      sum.add(data->reals[i]);
    result->reals.push_back(sum.sum(false));
  }
  return result;
}

Ref scaledBy(Call& call, const Ref& a, int64_t divisor) {
  return mapReals(call, {a}, a->shape, [&](llvm::ArrayRef<Exact> x) {
    return call.field().multiply(x[0], call.field().invert(call.field().integer(divisor)),
                                 1 / double(divisor));
  });
}

/// The growth of one element of a reduction with another one.
GrowthId reducedGrowth(Call& call, llvm::StringRef name, Growths::Number a, Growths::Number b) {
  Growths& growths = call.math.growths;
  if (name == "ReduceSum")
    return growths.sum(a, b);
  if (name == "ReduceProd")
    return growths.product(a, b);
  if (name != "ReduceMax" && name != "ReduceMin")
    return growths.untraced("computes a function of sizes that is not traced");
  const bool isUpper = name == "ReduceMax";
  call.noteThreshold(a, b, /*isExact=*/false);
  const bool isFirst = isUpper ? a.value >= b.value : a.value <= b.value;
  return isFirst ? growths.bound(a, b, isUpper) : growths.bound(b, a, isUpper);
}

/// The growth of the number of truths among `all` elements: all but some that no size determines.
GrowthId countOfTruths(Call& call, Growths::Number all, size_t target) {
  Growths& growths = call.math.growths;
  const std::string name = "falsehoods of " + call.node.describe() + " " + std::to_string(target);
  const GrowthId count = growths.sum(all, {growths.count(name), 0}, -1);
  return growths.bound({count, all.value}, {fixedGrowth, 0}, true);
}

/// The growths of reduced integers or known numbers. A sum over a number of elements that grows is
/// traced if each element is one constant, or truths.
void traceReduced(Call& call, const Ref& data, const Reduction& reduction, Tensor& result) {
  const llvm::StringRef name = call.node.op().type();
  Growths& growths = call.math.growths;
  Growths::Number number{fixedGrowth, 1};
  for (size_t i = 0; i < data->shape.size(); ++i)
    if (reduction.goes[i])
      number = {growths.product(number, data->extent(i)), number.value * double(data->shape[i])};
  if (data->growths.empty() && number.id == fixedGrowth)
    return;
  const auto count = static_cast<size_t>(result.count());
  const bool isBound = name == "ReduceMax" || name == "ReduceMin";
  auto named = [&](GrowthId id, llvm::ArrayRef<GrowthId> operands) {
    return growths.of(growths.stored(id, result.type), operands,
                      [&] { return call.node.describe(); });
  };
  std::vector<Growths::Number> totals(count);
  std::vector<bool> isSet(count), isMixed(count);
  double least = 0, most = 0;
  for (size_t i = 0; i < static_cast<size_t>(data->count()); ++i) {
    const size_t target = reduction.targets[i];
    const Growths::Number own = data->number(i);
    least = i == 0 ? own.value : std::min(least, own.value);
    most = i == 0 ? own.value : std::max(most, own.value);
    Growths::Number& total = totals[target];
    if (!isSet[target]) {
      total = own;
    } else if (number.id == fixedGrowth || isBound) {
      const double value = name == "ReduceSum"    ? total.value + own.value
                           : name == "ReduceProd" ? total.value * own.value
                           : name == "ReduceMax"  ? std::max(total.value, own.value)
                                                  : std::min(total.value, own.value);
      total = {named(reducedGrowth(call, name, total, own), {total.id, own.id}), value};
    }
    isSet[target] = true;
  }
  result.growths.clear();
  const bool isCount = data->growths.empty() && (least == most || (least >= 0 && most <= 1));
  for (size_t i = 0; i < count; ++i) {
    GrowthId id = totals[i].id;
    if (number.id != fixedGrowth && !isBound)
      id = name != "ReduceSum" || !isCount
               ? growths.untraced("computes a function of sizes that is not traced")
           : least == most ? growths.product(number, {fixedGrowth, most})
                           : countOfTruths(call, number, i);
    result.growths.push_back(named(id, {}));
  }
}

/// A sum or product, which wraps around for integers.
template <class T> T sumOf(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <class T> T productOf(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

int64_t largerOrSmaller(int64_t a, int64_t b, bool isUpper) {
  return isUpper ? std::max(a, b) : std::min(a, b);
}
double largerOrSmaller(double a, double b, bool isUpper) { return boundOf(a, b, isUpper); }

/// Reduction of integers or of known numbers.
Ref reducedKnown(Call& call, const Ref& data, const Reduction& reduction, llvm::StringRef name) {
  auto result = std::make_shared<Tensor>();
  result->kind = data->kind;
  result->type = data->type;
  result->shape = reduction.shape;
  result->isToken = data->isToken;
  result->isConstant = data->isConstant;
  const auto count = static_cast<size_t>(result->count());
  auto reduce = [&](const auto& from, auto& to) {
    std::vector<bool> isSet(count);
    to.assign(count, name == "ReduceProd" ? 1 : 0);
    for (size_t i = 0; i < from.size(); ++i) {
      auto& target = to[reduction.targets[i]];
      const auto value = from[i];
      if (name == "ReduceMax" || name == "ReduceMin") {
        if (!isSet[reduction.targets[i]])
          target = value;
        target = largerOrSmaller(target, value, name == "ReduceMax");
        isSet[reduction.targets[i]] = true;
      } else if (name == "ReduceProd") {
        target = productOf(target, value);
      } else {
        const bool isSquare = name == "ReduceSumSquare" || name == "ReduceL2";
        target = sumOf(target, isSquare ? productOf(value, value) : value);
      }
    }
    for (auto& value : to) {
      if (name == "ReduceMean" && reduction.combined)
        value /= static_cast<std::remove_reference_t<decltype(value)>>(reduction.combined);
      if (name == "ReduceL2")
        value = static_cast<std::remove_reference_t<decltype(value)>>(std::sqrt(double(value)));
    }
  };
  if (data->isInteger())
    reduce(data->integers, result->integers);
  else
    reduce(data->known, result->known);
  traceReduced(call, data, reduction, *result);
  return result;
}

/// Notes that a sum has as many terms as sizes say, so that it is a function of sizes.
void noteReducedExtents(Call& call, const Tensor& data, const Reduction& reduction) {
  for (size_t i = 0; i < data.shape.size(); ++i)
    if (reduction.goes[i] && data.extentGrowth(i) != fixedGrowth)
      call.math.thresholds.noteOpen(call.node.describe() + " reduces numbers of sizes");
}

Results reduce(Call& call) {
  const Ref data = call.in(0);
  const llvm::StringRef name = call.node.op().type();
  std::vector<int64_t> axes = call.integers("axes", 1).value_or(std::vector<int64_t>{});
  if (axes.empty()) {
    if (call.integer("noop_with_empty_axes", 0) != 0)
      return name == "ReduceSum" || name == "ReduceMax" || name == "ReduceMin"
                 ? Results{data}
                 : call.unsupported("it reduces no axis");
    for (int64_t i = 0; i < data->rank(); ++i)
      axes.push_back(i);
  }
  auto reduction = reductionOf(data, axes, call.integer("keepdims", 1) != 0);
  if (!reduction)
    return call.fail("an axis is out of range");
  if (!data->isHollow && reduction->combined == 0 && elementCount(reduction->shape) != 0 &&
      (name == "ReduceMax" || name == "ReduceMin" || name == "ReduceMean"))
    return call.unsupported("a bound or mean of no elements is not represented");
  if (!data->isReal() && !(data->isWeight && data->kind == Kind::Known))
    if (Ref known = reducedKnown(call, data, *reduction, name); !isBetterReal(call, known))
      return {known};
  if (call.math.isBySizes && !data->isReal())
    noteReducedExtents(call, *data, *reduction);
  Ref reals = call.real(data);
  if (name == "ReduceMax" || name == "ReduceMin")
    return {reducedReals(call, reals, *reduction, true, name == "ReduceMax" ? "Max" : "Min")};
  if (name == "ReduceProd")
    return call.unsupported("products of reals along an axis are unknown");
  if (name == "ReduceSumSquare" || name == "ReduceL2")
    reals = multiplyReals(call, reals, reals);
  Ref result = reducedReals(call, reals, *reduction, false, name);
  if (name == "ReduceMean")
    result = scaledBy(call, result, reduction->combined);
  if (name == "ReduceL2")
    result = unknownOf(call, "Sqrt", result);
  return {result};
}

Results softmax(Call& call) {
  const Ref data = call.real(0);
  const bool isOld = call.version() < 13;
  auto axis = axisOf(call.integer("axis", isOld ? 1 : -1), data->rank());
  if (!axis || (isOld && *axis + 1 != data->shape.size()))
    return call.unsupported("its axis is not the last one");
  return {softmaxOf(call, data, *axis)};
}

Results logSoftmax(Call& call) {
  Results result = softmax(call);
  return result.empty() ? std::move(result) : Results{unknownOf(call, "Log", result[0])};
}

Results layerNormalization(Call& call) {
  const bool isCentered = call.node.op().type() == "LayerNormalization";
  auto axis = axisOf(call.integer("axis", -1), call.in(0)->rank());
  if (!axis)
    return call.fail("its axis is out of range");
  Ref result = normalized(call, call.in(0), *axis, isCentered, call.number("epsilon", 1e-5));
  result = multiplyReals(call, result, call.real(1));
  if (result && isCentered && call.in(2))
    result = addReals(call, result, call.real(2));
  return result ? Results{result} : call.fail("its operands do not fit");
}

Results skipNormalization(Call& call) {
  const bool isCentered = call.node.op().type() == "SkipLayerNormalization";
  Ref sum = addReals(call, call.real(0), call.real(1));
  const unsigned bias = isCentered ? 4 : 3;
  if (sum && call.in(bias))
    sum = addReals(call, sum, call.real(bias));
  if (!sum || sum->rank() == 0)
    return call.fail("its operands do not fit");
  Ref result = normalized(call, sum, static_cast<unsigned>(sum->rank() - 1), isCentered,
                          call.number("epsilon", 1e-5));
  result = multiplyReals(call, result, call.real(2));
  if (result && isCentered && call.in(3))
    result = addReals(call, result, call.real(3));
  if (!result)
    return call.fail("its operands do not fit");
  return {result, nullptr, nullptr, sum};
}

} // namespace

Ref softmaxOf(Call& call, const Ref& scores, unsigned axis) {
  auto reduction = reductionOf(scores, {static_cast<int64_t>(axis)}, true);
  if (scores->isHollow)
    return hollowTensor(scores->shape, true);
  const Field& field = call.field();
  auto result = std::make_shared<Tensor>();
  result->shape = scores->shape;
  const auto count = static_cast<size_t>(std::max<int64_t>(elementCount(reduction->shape), 0));
  std::vector<ExactSum> sums(count, ExactSum(field));
  std::vector<bool> sees(count), hasFill(count);
  for (size_t i = 0; i < scores->reals.size(); ++i) {
    const size_t row = reduction->targets[i];
    const Exact& score = scores->reals[i];
    sees[row] = sees[row] || score.isNumber() || score.status >= Status::Unspecified ||
                score.status == Status::PlusInfinity;
    hasFill[row] = hasFill[row] || score.status == Status::Fill;
    result->reals.push_back(field.exponential(score));
    sums[row].add(result->reals.back());
  }
  std::vector<Exact> inverses;
  for (const ExactSum& sum : sums)
    inverses.push_back(field.invert(sum.sum(false)));
  for (size_t i = 0; i < result->reals.size(); ++i) {
    const size_t row = reduction->targets[i];
    Exact& element = result->reals[i];
    if (sees[row])
      element = field.multiply(element, inverses[row]);
    else
      element = {0, 0, hasFill[row] ? Status::Unspecified : Status::NotANumber, false};
    if (hasFill[row] && sees[row])
      call.math.assumptions.insert(fillHidesKey);
  }
  return result;
}

Ref normalized(Call& call, const Ref& input, unsigned axis, bool isCentered, double epsilon) {
  Ref data = call.real(input);
  std::vector<int64_t> axes;
  for (int64_t i = axis; i < data->rank(); ++i)
    axes.push_back(i);
  auto reduction = reductionOf(data, axes, true);
  auto mean = [&](const Ref& of) {
    return scaledBy(call, reducedReals(call, of, *reduction, false, "Mean"), reduction->combined);
  };
  if (isCentered) {
    Ref average = mean(data);
    data = addReals(call, data,
                    mapReals(call, {average}, average->shape,
                             [&](llvm::ArrayRef<Exact> x) { return call.field().negate(x[0]); }));
  }
  Ref variance = mean(multiplyReals(call, data, data));
  Ref root = unknownOf(call, "Sqrt", addReals(call, variance, realScalar(call, epsilon)));
  return multiplyReals(call, data,
                       mapReals(call, {root}, root->shape, [&](llvm::ArrayRef<Exact> x) {
                         return call.field().invert(x[0]);
                       }));
}

void addReductionRules(RuleTable& rules) {
  for (const char* name : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd",
                           "ReduceSumSquare", "ReduceL2"})
    rules[name] = reduce;
  rules["Softmax"] = softmax;
  rules["LogSoftmax"] = logSoftmax;
  rules["LayerNormalization"] = layerNormalization;
  rules["RMSNormalization"] = layerNormalization;
  rules["SimplifiedLayerNormalization"] = layerNormalization;
  rules["com.microsoft::SimplifiedLayerNormalization"] = layerNormalization;
  rules["com.microsoft::SkipSimplifiedLayerNormalization"] = skipNormalization;
  rules["com.microsoft::SkipLayerNormalization"] = skipNormalization;
}

} // namespace kvopt::check
