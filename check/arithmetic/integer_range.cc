// Two's complement.
#include "check/arithmetic/integer_range.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::check {
namespace {

constexpr unsigned mostBits = 64;

struct IntegerType {
  unsigned bits = mostBits;
  bool isSigned = true;
};

IntegerType integerType(ir::ElementType type) {
  return {ir::bitWidth(type).value_or(mostBits), !ir::isUnsigned(type)};
}

/// The integer of a type's bits. Integers that the check does not represent are open.
int64_t wrapped(int64_t value, IntegerType type) {
  if (type.bits >= mostBits)
    return type.isSigned || value >= 0 ? value : openInteger;
  const unsigned unused = mostBits - type.bits;
  const uint64_t high = static_cast<uint64_t>(value) << unused;
  return type.isSigned ? static_cast<int64_t>(high) >> unused
                       : static_cast<int64_t>(high >> unused);
}

} // namespace

bool holds(ir::ElementType type, double number) {
  const IntegerType own = integerType(type);
  constexpr double most = 1e18;
  const double end = std::ldexp(1.0, int(own.bits) - (own.isSigned ? 1 : 0));
  return number >= (own.isSigned ? -std::min(end, most) : 0) && number < std::min(end, most);
}

Ref wrappedToType(Ref tensor) {
  if (!tensor->isInteger() || !ir::isInteger(tensor->type) ||
      tensor->type == ir::ElementType::Int64)
    return tensor;
  const IntegerType type = integerType(tensor->type);
  auto stored = [&](int64_t value) { return value == openInteger ? value : wrapped(value, type); };
  if (llvm::all_of(tensor->integers, [&](int64_t value) { return stored(value) == value; }))
    return tensor;
  auto result = std::make_shared<Tensor>(*tensor);
  for (int64_t& value : result->integers)
    value = stored(value);
  return result;
}

} // namespace kvopt::check
