// From a value to the values that it is made of.
#include "check/regions/plain_numbers.h"

#include "check/arithmetic/call.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {
namespace {

/// Whether a value is a constant that has neither zeros nor infinite elements.
bool isDivisor(const ir::Value& value) {
  const auto data = value.constantRef();
  const Ref divisors = data && !isWeightData(*data) ? tensorOf(*data) : nullptr;
  return divisors && divisors->kind == Kind::Known && !Constants::hasSpecial(*divisors) &&
         !llvm::is_contained(divisors->known, 0.0);
}

} // namespace

bool PlainNumbers::compute(const ir::Value& value) {
  if (const auto data = value.constantRef()) {
    if (isWeightData(*data))
      return false; // its contents are not read
    const Ref contents = tensorOf(*data);
    return contents && !Constants::hasSpecial(*contents);
  }
  const ir::Node* node = value.producer();
  if (!node)
    return false;
  const meaning::NodeFacts& facts = operators.of(*node);
  if (facts.making > meaning::Making::Finite)
    return false;
  for (unsigned i = 0; i < node->operands().size(); ++i) {
    const ir::Value* operand = node->operand(i);
    if (!operand || !facts.makesOf(i))
      continue;
    if (meaning::NodeFacts::isIn(facts.divisors, i) && !isDivisor(*operand))
      return false;
    // Integers become numbers.
    const ir::ElementType type = operand->type().elementType();
    const bool isInteger = type != ir::ElementType::Undefined && !ir::isFloatingPoint(type);
    if (!isInteger && !isPlain(*operand))
      return false;
  }
  return true;
}

bool PlainNumbers::isPlain(const ir::Value& value) {
  // A value on the way to itself, as in a cycle, is not plain.
  auto [at, isNew] = known.try_emplace(&value, false);
  if (!isNew)
    return at->second;
  constexpr unsigned deepest = 200;
  ++depth;
  const bool isOne = depth < deepest && compute(value);
  --depth;
  known[&value] = isOne;
  return isOne;
}

} // namespace kvopt::check
