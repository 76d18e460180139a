// Operators that keep numbers plain.
#include "check/regions/plain_numbers.h"

#include "check/arithmetic/call.h"
#include "ir/elementwise.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace kvopt::check {
namespace {

/// Whether a node divides by a constant that has neither zeros nor infinite elements.
bool hasDivisors(const ir::Node& node) {
  const auto data = node.operand(1) ? node.operand(1)->constantRef() : nullptr;
  const Ref divisors = data && !isWeightData(*data) ? tensorOf(*data) : nullptr;
  return divisors && divisors->kind == Kind::Known && !Constants::hasSpecial(*divisors) &&
         !llvm::is_contained(divisors->known, 0.0);
}

/// Operands of an operator that must be plain: the first, or others. A mask of bits; nullopt for
/// operators whose results may be other than numbers.
std::optional<unsigned> operandsToCheck(const ir::Node& node) {
  constexpr unsigned none = 0, first = 1, second = 2, third = 4, all = ~0u;
  if (!node.op().isOnnx())
    return std::nullopt;
  if (const auto function = ir::elementFunction(node))
    switch (*function) {
    case ir::ElementFunction::Sum:
    case ir::ElementFunction::Product:
    case ir::ElementFunction::Bound:
    case ir::ElementFunction::Rounding:
      return all;
    case ir::ElementFunction::Choice:
      return second | third;
    case ir::ElementFunction::Quotient:
      return node.is("Div") && hasDivisors(node) ? std::optional(first) : std::nullopt;
    default: // functions with poles are not plain
      return node.is("Sin") || node.is("Cos") || node.is("Tanh") ? std::optional(first)
                                                                 : std::nullopt;
    }
  return llvm::StringSwitch<std::optional<unsigned>>(node.op().type())
      .Cases("Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", first)
      .Cases("Expand", "Slice", "Gather", "Tile", "Split", first)
      .Cases("Cast", "Flatten", "Trilu", "GatherElements", "GatherND", first)
      .Case("Concat", all)
      .Case("Range", none)
      .Default(std::nullopt);
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
  const auto operands = node ? operandsToCheck(*node) : std::nullopt;
  if (!operands)
    return false;
  for (unsigned i = 0; i < node->operands().size(); ++i) {
    constexpr unsigned bits = 32;
    const ir::Value* operand = node->operand(i);
    if (!operand || (i < bits && !(*operands >> i & 1)))
      continue;
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
