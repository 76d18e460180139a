// How elements of integer and of known tensors are combined.
#include "check/rules/elementwise.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {

double stored(double value, ir::ElementType type) {
  return type == ir::ElementType::Double ? value : static_cast<double>(static_cast<float>(value));
}

Ref combined(const Ref& a, const Ref& b, IntegerFunction ofIntegers, NumberFunction ofNumbers,
             bool isTruth) {
  auto shape = broadcastShape(a->shape, b->shape);
  if (!shape || elementCount(*shape) < 0)
    return nullptr;
  auto result = std::make_shared<Tensor>();
  result->shape = *shape;
  result->type = isTruth ? ir::ElementType::Bool : a->type;
  result->isToken = a->isToken || b->isToken;
  result->isConstant = a->isConstant && b->isConstant;
  result->period = commonPeriod(a->period, b->period);
  const Ref left = broadcastTo(a, *shape), right = broadcastTo(b, *shape);
  if (a->isInteger() && b->isInteger() && ofIntegers) {
    result->kind = Kind::Integer;
    for (size_t i = 0; i < left->integers.size(); ++i) {
      const int64_t x = left->integers[i], y = right->integers[i];
      const bool isOpen = x == openInteger || y == openInteger;
      result->integers.push_back(isOpen ? openInteger : ofIntegers(x, y));
    }
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
  return result;
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
