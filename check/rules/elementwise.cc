// How elements of integer and of known tensors are combined.
#include "check/rules/elementwise.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {

double stored(double value, ir::ElementType type) {
  return type == ir::ElementType::Double ? value : static_cast<double>(static_cast<float>(value));
}

namespace {

GrowthId tracedElement(Growths& growths, Tracing tracing, Growths::Number a, Growths::Number b,
                       bool areIntegers) {
  switch (tracing) {
  case Tracing::Sum:
    return growths.sum(a, b);
  case Tracing::Difference:
    return growths.sum(a, b, -1);
  case Tracing::Product:
    return growths.product(a, b);
  case Tracing::Quotient:
    return growths.quotient(a, b, areIntegers);
  case Tracing::Remainder:
    return growths.remainder(a, b, false);
  case Tracing::TruncatedRemainder:
    return growths.remainder(a, b, true);
  case Tracing::Upper:
    return a.value >= b.value ? growths.bound(a, b, true) : growths.bound(b, a, true);
  case Tracing::Lower:
    return a.value <= b.value ? growths.bound(a, b, false) : growths.bound(b, a, false);
  case Tracing::Truth:
    return fixedGrowth;
  case Tracing::None:
    break;
  }
  return growths.untraced("computes a function of sizes that is not a sum of multiples of them");
}

/// The growths of combined elements.
void trace(Call& call, Tracing tracing, const Tensor& a, const Tensor& b, Tensor& result) {
  const auto count = static_cast<size_t>(result.count());
  if ((a.growths.empty() && b.growths.empty()) || tracing == Tracing::Truth)
    return;
  Growths& growths = call.math.growths;
  auto isSame = [](const Growths::Number& one, const Growths::Number& other) {
    return one.id == other.id && (one.id != fixedGrowth || one.value == other.value);
  };
  const bool isChoice = tracing == Tracing::Upper || tracing == Tracing::Lower;
  Growths::Number lastA, lastB;
  result.growths.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Growths::Number x = a.number(i), y = b.number(i);
    if (i > 0 && !isChoice && isSame(x, lastA) && isSame(y, lastB)) {
      result.growths.push_back(result.growths.back());
      continue;
    }
    const GrowthId id = tracedElement(growths, tracing, x, y, a.isInteger());
    result.growths.push_back(growths.of(growths.stored(id, result.type), {x.id, y.id},
                                        [&] { return call.node.describe(); }));
    lastA = x;
    lastB = y;
  }
}

} // namespace

Ref combined(Call& call, const Ref& a, const Ref& b, Tracing tracing, IntegerFunction ofIntegers,
             NumberFunction ofNumbers) {
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape || elementCount(*shape) < 0)
    return nullptr;
  const bool isTruth = tracing == Tracing::Truth;
  auto result = std::make_shared<Tensor>();
  result->shape = *shape;
  result->type = isTruth ? ir::ElementType::Bool : a->type;
  result->isToken = a->isToken || b->isToken;
  result->isConstant = a->isConstant && b->isConstant;
  const Ref left = broadcastTo(a, *shape), right = broadcastTo(b, *shape);
  if (a->isInteger() && b->isInteger() && ofIntegers) {
    result->kind = Kind::Integer;
    for (size_t i = 0; i < left->integers.size(); ++i) {
      const int64_t x = left->integers[i], y = right->integers[i];
      const bool isOpen = x == openInteger || y == openInteger;
      result->integers.push_back(isOpen ? openInteger : ofIntegers(x, y));
    }
    trace(call, tracing, *left, *right, *result);
    return result;
  }
  if (a->kind != Kind::Known || b->kind != Kind::Known || !ofNumbers)
    return nullptr;
  result->kind = isTruth ? Kind::Integer : Kind::Known;
  for (size_t i = 0; i < left->known.size(); ++i) {
    const double value = ofNumbers(left->known[i], right->known[i]);
    if (isTruth)
      result->integers.push_back(value != 0);
    else
      result->known.push_back(stored(value, a->type));
  }
  trace(call, tracing, *left, *right, *result);
  return result;
}

void traceEach(Call& call, const Tensor& operand, Tensor& result,
               llvm::function_ref<GrowthId(Growths::Number)> trace) {
  result.growths.clear();
  for (size_t i = 0; i < operand.growths.size(); ++i) {
    const Growths::Number number = operand.number(i);
    if (number.id == fixedGrowth) {
      result.growths.push_back(fixedGrowth);
      continue;
    }
    const GrowthId id = call.math.growths.stored(trace(number), result.type);
    result.growths.push_back(
        call.math.growths.of(id, {number.id}, [&] { return call.node.describe(); }));
  }
}

void untraceAll(Call& call, const Tensor& operand, Tensor& result) {
  traceEach(call, operand, result, [&](Growths::Number) {
    return call.math.growths.untraced("computes a function of sizes that is not a sum of multiples "
                                      "of them");
  });
}

void traceRounding(Call& call, const Tensor& operand, Tensor& result) {
  const uint64_t name = nameHash(call.node.op().type());
  traceEach(call, operand, result, [&](Growths::Number x) {
    const GrowthId rounded = call.math.growths.rounded(x, name, call.node.op().type() == "Round");
    if (rounded != x.id)
      call.noteSteps(x, 1);
    return rounded;
  });
}

bool isBetterReal(Call& call, const Ref& result) {
  return call.math.isBySizes && result && result->kind == Kind::Known &&
         llvm::any_of(result->growths,
                      [&](GrowthId id) { return !call.math.growths.at(id).isAffine(); });
}

bool areKnown(Call& call) {
  return llvm::all_of(call.operands, [](const Ref& operand) {
    return !operand || (!operand->isReal() && !(operand->isWeight && operand->kind == Kind::Known));
  });
}

Results need(Call& call, Ref result) {
  if (result)
    return {std::move(result)};
  Extents shape;
  for (const Ref& operand : call.operands)
    if (operand) {
      auto common = broadcastShape(shape, operand->shape);
      if (!common)
        return call.fail("its operands do not fit");
      shape = *common;
    }
  return call.unsupported("it combines operands of different kinds, or the result is too large");
}

Ref knownScalar(double value) {
  auto result = std::make_shared<Tensor>();
  result->kind = Kind::Known;
  result->known = {value};
  result->isConstant = true;
  return result;
}

} // namespace kvopt::check
