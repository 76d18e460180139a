// Operators along axes: reductions, extremes, running sums, softmax and norms.
#include "tests/differential/operators.h"

#include <limits>

namespace kvopt::differential {
using namespace ir;

namespace {

size_t placeOf(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

Instance reduction(const char* name, Dice& dice) {
  const llvm::StringRef op(name);
  const bool isSum = op == "ReduceSum";
  const bool isBound = op == "ReduceMax" || op == "ReduceMin";
  Instance instance(name, dice.anyOf<int64_t>({11, 12, 13, 18, 20}));
  const bool asOperand = instance.opset >= (isSum ? 13 : 18);
  using enum ElementType;
  ElementType type = dice.anyOf({Float, Float, Double, Int64, Int32});
  if (asOperand && dice.oneIn(4))
    type = isBound && instance.opset >= 20 ? anyType(dice) : floatType(dice);
  if (op == "ReduceL2")
    type = Float;
  Extents extents = dice.extents(0, 4);
  std::vector<int64_t> axes = dice.axes(extents.size());
  if (isBound || op == "ReduceMean") // of nothing, they are undefined
    for (int64_t& extent : extents)
      extent = std::max<int64_t>(extent, 1);
  instance.in(op == "ReduceProd" ? integers(dice, {type, extents}, 1, 2)
              : isBound          ? any(dice, {type, extents})
                                 : integers(dice, {type, extents}, -4, 4));
  if (!axes.empty() || (asOperand && dice.oneIn(2))) {
    if (asOperand)
      instance.select(std::move(axes));
    else
      instance.attr("axes", std::move(axes));
  } else if (asOperand && dice.oneIn(3)) {
    instance.absent();
  }
  if (asOperand && dice.oneIn(3))
    instance.attr("noop_with_empty_axes", dice.between(0, 1));
  if (!dice.oneIn(3))
    instance.attr("keepdims", dice.between(0, 1));
  if (isBound || op == "ReduceL1" || op == "ReduceL2" || op == "ReduceLogSumExp")
    instance.opaque();
  return instance.rounded(64);
}

Instance extreme(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 12, 13}));
  Extents extents = dice.extents(1, 3);
  const int64_t axis = dice.axis(extents.size());
  int64_t& extent = extents[placeOf(axis, extents.size())];
  extent = std::max<int64_t>(extent, 1);
  const ElementType type = numericType(dice);
  // So that there are equal ones.
  instance.in(dice.oneIn(6) ? special(dice, {type, extents})
                            : integers(dice, {type, extents}, 0, 2));
  if (axis != 0 || dice.oneIn(2))
    instance.attr("axis", axis);
  if (!dice.oneIn(3))
    instance.attr("keepdims", dice.between(0, 1));
  if (instance.opset >= 12 && dice.oneIn(2))
    instance.attr("select_last_index", dice.between(0, 1));
  return instance;
}

Instance largest(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({1, 10, 11}));
  Extents extents = dice.extents(1, 3);
  const int64_t axis = instance.opset < 11 ? dice.between(0, int64_t(extents.size()) - 1)
                                           : dice.axis(extents.size());
  int64_t& extent = extents[placeOf(axis, extents.size())];
  extent = std::max<int64_t>(extent, 1);
  const int64_t k = dice.between(instance.opset < 10 ? 1 : 0, extent);
  instance.results = 2;
  const ElementType type = instance.opset < 11
                               ? dice.anyOf({ElementType::Float, ElementType::Double})
                               : numericType(dice);
  instance.in(integers(dice, {type, extents}, 0, 3));
  if (instance.opset < 10)
    instance.attr("k", k);
  else
    instance.select(std::vector<int64_t>{k});
  if (placeOf(axis, extents.size()) + 1 != extents.size() || dice.oneIn(2))
    instance.attr("axis", axis);
  if (instance.opset >= 11 && dice.oneIn(2))
    instance.attr("largest", dice.between(0, 1));
  return instance;
}

Instance running(const char* name, Dice& dice) {
  const bool isProduct = name == std::string("CumProd");
  Instance instance(name, isProduct ? 26 : dice.anyOf<int64_t>({11, 14}));
  using enum ElementType;
  const ElementType type = dice.anyOf({Float, Double, Int32, Int64});
  const Extents extents = dice.extents(1, 3);
  instance.in(integers(dice, {type, extents}, isProduct ? 1 : -4, isProduct ? 2 : 4));
  const ElementType ofAxis = dice.oneIn(2) ? Int32 : Int64;
  instance.select(scalarOf(ofAxis, static_cast<Number>(dice.axis(extents.size()))));
  for (const char* flag : {"exclusive", "reverse"})
    if (dice.oneIn(2))
      instance.attr(flag, dice.between(0, 1));
  return instance.rounded(64);
}

Instance softmax(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({1, 11, 12, 13, 13, 13}));
  const Extents extents = dice.extents(1, 4);
  const auto rank = static_cast<int64_t>(extents.size());
  const ElementType type = instance.opset < 13 ? ElementType::Float : floatType(dice);
  instance.in(integers(dice, {type, extents}, -1, 1));
  if (dice.oneIn(4)) // as masks do
    for (Number& number : instance.operands[0].numbers.elements)
      number = dice.oneIn(4) ? -std::numeric_limits<Number>::infinity() : number;
  // The default is 1 in old versions, which needs two axes.
  if ((instance.opset < 13 && rank == 1) || !dice.oneIn(3))
    instance.attr("axis",
                  instance.opset < 11 ? dice.between(0, rank - 1) : dice.axis(extents.size()));
  return instance.rounded(4).opaque();
}

Instance normalization(const char* name, Dice& dice) {
  const bool isCentered = name == std::string("LayerNormalization");
  Instance instance(name, isCentered ? 17 : 23);
  Extents extents = dice.extents(1, 4);
  for (int64_t& extent : extents)
    extent = std::max<int64_t>(extent, 1);
  int64_t axis = dice.axis(extents.size());
  const bool isDefault = dice.oneIn(3);
  if (isDefault)
    axis = -1;
  Extents inner(extents.begin() + static_cast<long>(placeOf(axis, extents.size())), extents.end());
  using enum ElementType;
  const ElementType type = dice.anyOf({Float, Float, Double});
  instance.in(integers(dice, {type, extents}, -3, 3));
  for (int64_t& extent : inner)
    extent = dice.oneIn(4) ? 1 : extent;
  instance.in(integers(dice, {type, inner}, 1, 3));
  if (isCentered && dice.oneIn(2))
    instance.in(integers(dice, {type, inner}, -2, 2));
  if (!isDefault)
    instance.attr("axis", axis);
  if (dice.oneIn(2))
    instance.attr("epsilon", 0.25f);
  return instance.rounded(100).opaque();
}

constexpr Operator operators[] = {
    {"ReduceSum", reduction},
    {"ReduceMean", reduction},
    {"ReduceMax", reduction},
    {"ReduceMin", reduction},
    {"ReduceProd", reduction},
    {"ReduceSumSquare", reduction},
    {"ReduceL1", reduction},
    {"ReduceL2", reduction},
    {"ArgMax", extreme},
    {"ArgMin", extreme},
    {"TopK", largest},
    {"CumSum", running},
    {"CumProd", running},
    {"Softmax", softmax},
    {"LogSoftmax", softmax},
    {"LayerNormalization", normalization},
    {"RMSNormalization", normalization},
    {"SimplifiedLayerNormalization", normalization},
};

} // namespace

llvm::ArrayRef<Operator> reductionOperators() { return operators; }

} // namespace kvopt::differential
