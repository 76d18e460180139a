// Functions of one operand.
#include "tests/differential/operators.h"

namespace kvopt::differential {
using namespace ir;

namespace {

Instance ofFloats(const char* name, Dice& dice, int64_t opset) {
  Instance instance(name, opset);
  return instance.in(any(dice, {floatType(dice), dice.extents(0, 3)})).rounded(20).opaque();
}

Instance activation(const char* name, Dice& dice) { return ofFloats(name, dice, 20); }

/// Functions of positive numbers.
Instance ofPositive(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({6, 13}));
  const ElementType type = floatType(dice);
  instance.in(integers(dice, {type, dice.extents(0, 3)}, 1, 16)).rounded(4);
  if (name == std::string("Log") || name == std::string("Sqrt"))
    instance.opaque();
  return instance;
}

/// Functions of numbers of any type.
Instance ofNumbers(const char* name, Dice& dice) {
  ElementType type = numericType(dice);
  if (name == std::string("Neg") && stored(type, -1) > 0)
    type = ElementType::Int32;
  Instance instance(name, 13);
  instance.in(any(dice, {type, dice.extents(0, 3)}));
  if (name != std::string("Neg"))
    instance.opaque();
  return instance;
}

Instance rounding(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 13}));
  return instance.in(any(dice, {floatType(dice), dice.extents(0, 3)})).opaque();
}

Instance relu(const char* name, Dice& dice) {
  const ElementType type =
      dice.oneIn(3) ? dice.anyOf({ElementType::Int32, ElementType::Int64}) : floatType(dice);
  Instance instance(name, 14);
  return instance.in(any(dice, {type, dice.extents(0, 3)})).opaque();
}

Instance gelu(const char* name, Dice& dice) {
  Instance instance = ofFloats(name, dice, 20);
  if (dice.oneIn(2))
    instance.attr("approximate", dice.anyOf({"none", "tanh"}));
  return instance;
}

Instance swish(const char* name, Dice& dice) {
  Instance instance = ofFloats(name, dice, 24);
  if (dice.oneIn(2))
    instance.attr("alpha", static_cast<float>(dice.between(-2, 2)));
  return instance;
}

Instance same(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({1, 13, 21}));
  return instance.in(distinct(dice, {anyType(dice), dice.extents(0, 4)}));
}

Instance dropout(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({10, 13}));
  instance.in(distinct(dice, {floatType(dice), dice.extents(1, 3)}));
  if (instance.opset < 12)
    return instance;
  if (dice.oneIn(2))
    instance.in(scalarOf(ElementType::Float, 0.5));
  else
    instance.absent();
  if (dice.oneIn(2))
    instance.select(scalarOf(ElementType::Bool, 0));
  return instance;
}

constexpr Operator operators[] = {
    {"Sqrt", ofPositive},    {"Reciprocal", ofPositive}, {"Log", ofPositive}, {"Exp", activation},
    {"Erf", activation},     {"Tanh", activation},       {"Sin", activation}, {"Cos", activation},
    {"Sigmoid", activation}, {"Softplus", activation},   {"Relu", relu},      {"Gelu", gelu},
    {"Swish", swish},        {"Neg", ofNumbers},         {"Abs", ofNumbers},  {"Sign", ofNumbers},
    {"Floor", rounding},     {"Ceil", rounding},         {"Round", rounding}, {"Identity", same},
    {"Dropout", dropout},
};

} // namespace

llvm::ArrayRef<Operator> activationOperators() { return operators; }

} // namespace kvopt::differential
