// Arithmetic, comparisons, logic, choices and conversions.
#include "tests/differential/operators.h"

#include <cmath>

namespace kvopt::differential {
using namespace ir;

std::vector<Extents> broadcastExtents(Dice& dice, size_t count) {
  const Extents full = dice.extents(0, dice.oneIn(3) ? 1 : 3);
  std::vector<Extents> result;
  for (size_t i = 0; i < count; ++i) {
    Extents own(full.begin() + dice.between(0, dice.oneIn(3) ? int64_t(full.size()) : 0),
                full.end());
    for (int64_t& extent : own)
      extent = dice.oneIn(4) ? 1 : extent;
    result.push_back(std::move(own));
  }
  return result;
}

namespace {

/// A version that has all element types of arithmetic, or one that has the few of opset 7.
int64_t arithmeticVersion(Dice& dice, ElementType type) {
  const bool isOld = type == ElementType::Float || type == ElementType::Int64;
  return isOld && dice.oneIn(3) ? dice.anyOf<int64_t>({8, 10, 11, 13})
                                : dice.anyOf<int64_t>({14, 18, 21});
}

Instance arithmetic(const char* name, Dice& dice) {
  const ElementType type = numericType(dice);
  const auto extents = broadcastExtents(dice, 2);
  Instance instance(name, arithmeticVersion(dice, type));
  for (const Extents& own : extents)
    instance.in(any(dice, {type, own}));
  return instance.rounded(40);
}

/// Numbers other than 0. Of integers, none is -1, by which the least integer cannot be divided.
Numbers divisors(Dice& dice, ElementType type, const Extents& extents) {
  Numbers numbers = varied(dice, {type, extents});
  for (Number& number : numbers.elements)
    if (number == 0 || (isInteger(type) && number == -1))
      number = 3;
  return numbers;
}

Instance quotient(const char* name, Dice& dice) {
  const ElementType type = numericType(dice);
  const auto extents = broadcastExtents(dice, 2);
  Instance instance(name, arithmeticVersion(dice, type));
  instance.in(any(dice, {type, extents[0]}));
  const bool byZero = isFloatingPoint(type) && dice.oneIn(6);
  instance.in(byZero ? varied(dice, {type, extents[1]}) : divisors(dice, type, extents[1]));
  return instance.rounded(20);
}

Instance remainder(const char* name, Dice& dice) {
  const ElementType type = numericType(dice);
  const auto extents = broadcastExtents(dice, 2);
  Instance instance(name, dice.anyOf<int64_t>({10, 13, 18}));
  instance.in(varied(dice, {type, extents[0]})).in(divisors(dice, type, extents[1]));
  if (isFloatingPoint(type) || dice.oneIn(3))
    instance.attr("fmod", int64_t{1});
  else if (dice.oneIn(3))
    instance.attr("fmod", int64_t{0});
  return instance.opaque();
}

Instance power(const char* name, Dice& dice) {
  const ElementType type =
      dice.anyOf({ElementType::Float, ElementType::Double, ElementType::Int32, ElementType::Int64});
  const ElementType exponent = dice.oneIn(2) ? type : numericType(dice);
  const auto extents = broadcastExtents(dice, 2);
  Instance instance(name, dice.anyOf<int64_t>({12, 13, 15}));
  const bool isLarge = isInteger(type) && isInteger(exponent) && dice.oneIn(3);
  instance.in(integers(dice, {type, extents[0]}, isLarge ? -5 : 1, 4));
  instance.in(integers(dice, {exponent, extents[1]}, 0, isLarge ? 40 : 3));
  if (isFloatingPoint(type) && isFloatingPoint(exponent) && dice.oneIn(3))
    for (Number& number : instance.operands[1].numbers.elements)
      number = dice.oneIn(2) ? 0.5 : -1;
  return instance.rounded(64).opaque();
}

Instance several(const char* name, Dice& dice) {
  const bool isBound = name != std::string("Sum");
  const ElementType type = isBound ? numericType(dice) : floatType(dice);
  Instance instance(name, dice.anyOf<int64_t>({12, 13}));
  for (const Extents& own : broadcastExtents(dice, static_cast<size_t>(dice.between(1, 3))))
    instance.in(any(dice, {type, own}));
  if (isBound)
    return instance.opaque();
  return instance.rounded(40);
}

Instance logic(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({7, 13, 18}));
  for (const Extents& own : broadcastExtents(dice, 2))
    instance.in(integers(dice, {ElementType::Bool, own}, 0, 1));
  return instance;
}

Instance bits(const char* name, Dice& dice) {
  const ElementType type = integerType(dice);
  Instance instance(name, 18);
  for (const Extents& own : broadcastExtents(dice, 2))
    instance.in(varied(dice, {type, own}));
  return instance;
}

Instance negation(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({7, 13, 18}));
  return instance.in(integers(dice, {ElementType::Bool, dice.extents(0, 3)}, 0, 1));
}

Instance comparison(const char* name, Dice& dice) {
  const ElementType type = name == std::string("Equal") ? anyType(dice) : numericType(dice);
  Instance instance(name, dice.anyOf<int64_t>({13, 16, 19}));
  for (const Extents& own : broadcastExtents(dice, 2))
    instance.in(dice.oneIn(3) ? any(dice, {type, own}) : integers(dice, {type, own}, 0, 2));
  return instance;
}

Instance notNumbers(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({13, 20}));
  return instance.in(special(dice, {floatType(dice), dice.extents(0, 3)}));
}

Instance infinities(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({10, 20}));
  const ElementType type = instance.opset == 10
                               ? dice.anyOf({ElementType::Float, ElementType::Double})
                               : floatType(dice);
  for (const char* side : {"detect_negative", "detect_positive"})
    if (dice.oneIn(2))
      instance.attr(side, dice.between(0, 1));
  return instance.in(special(dice, {type, dice.extents(0, 3)}));
}

Instance choice(const char* name, Dice& dice) {
  const ElementType type = anyType(dice);
  const auto extents = broadcastExtents(dice, 3);
  Instance instance(name, dice.anyOf<int64_t>({9, 16}));
  instance.select(integers(dice, {ElementType::Bool, extents[0]}, 0, 1));
  return instance.in(distinct(dice, {type, extents[1]})).in(any(dice, {type, extents[2]}));
}

Instance bounded(const char* name, Dice& dice) {
  if (dice.oneIn(4)) {
    Instance old(name, dice.anyOf<int64_t>({6, 10}));
    old.in(varied(dice, {ElementType::Float, dice.extents(0, 3)}));
    if (!dice.oneIn(3))
      old.attr("min", static_cast<float>(dice.between(-3, 3)));
    if (!dice.oneIn(3))
      old.attr("max", static_cast<float>(dice.between(-3, 3)));
    return old.opaque();
  }
  const ElementType type = numericType(dice);
  Instance instance(name, dice.anyOf<int64_t>({12, 13}));
  instance.in(any(dice, {type, dice.extents(0, 3)}));
  for (int bound = 0; bound < 2; ++bound)
    if (dice.oneIn(4))
      instance.absent();
    else
      instance.in(integers(dice, {type, {}}, -3, 3));
  return instance.opaque();
}

/// Numbers that a conversion between the types defines: integers wrap, and other numbers are in
/// range.
Numbers convertible(Dice& dice, ElementType from, ElementType to) {
  const Extents extents = dice.extents(0, 3);
  if (isFloatingPoint(to))
    return isFloatingPoint(from) && dice.oneIn(3) ? special(dice, {from, extents})
           : isInteger(from) ? integers(dice, {from, extents}, stored(from, -1) < 0 ? -9 : 0, 9)
                             : varied(dice, {from, extents});
  if (!isFloatingPoint(from) || to == ElementType::Bool)
    return any(dice, {from, extents});
  Numbers numbers = varied(dice, {from, extents});
  for (Number& number : numbers.elements)
    number = stored(to, -1) > 0 ? std::abs(number) : number; // an unsigned type
  return numbers;
}

Instance conversion(const char* name, Dice& dice) {
  const ElementType from = anyType(dice), to = anyType(dice);
  if (name == std::string("CastLike")) {
    Instance instance(name, dice.anyOf<int64_t>({15, 19, 21}));
    instance.in(convertible(dice, from, to));
    return instance.in(varied(dice, {to, dice.extents(0, 2)}));
  }
  Instance instance(name, dice.anyOf<int64_t>({13, 19, 21}));
  if (dice.oneIn(4) && instance.opset >= 19)
    instance.attr("saturate", int64_t{1});
  return instance.in(convertible(dice, from, to)).attr("to", static_cast<int64_t>(to));
}

constexpr Operator operators[] = {
    {"Add", arithmetic},
    {"Sub", arithmetic},
    {"Mul", arithmetic},
    {"Div", quotient},
    {"Mod", remainder},
    {"Pow", power},
    {"Min", several},
    {"Max", several},
    {"Sum", several},
    {"And", logic},
    {"Or", logic},
    {"BitwiseAnd", bits},
    {"BitwiseOr", bits},
    {"BitwiseXor", bits},
    {"Xor", logic},
    {"Not", negation},
    {"Equal", comparison},
    {"Less", comparison},
    {"Greater", comparison},
    {"LessOrEqual", comparison},
    {"GreaterOrEqual", comparison},
    {"IsNaN", notNumbers},
    {"IsInf", infinities},
    {"Where", choice},
    {"Clip", bounded},
    {"Cast", conversion},
    {"CastLike", conversion},
};

} // namespace

llvm::ArrayRef<Operator> elementwiseOperators() { return operators; }

} // namespace kvopt::differential
