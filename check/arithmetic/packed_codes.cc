// Bytes of four-bit codes over exact numbers.
#include "check/arithmetic/packed_codes.h"

#include "check/arithmetic/call.h"

namespace kvopt::check {
namespace {
constexpr int64_t above = 16; ///< the weight of the upper code
}

void PackedFloors::add(const Exact& packed, const Exact& upper, const Field& field) {
  const Exact part = field.invert(field.integer(above));
  floors[field.multiply(packed, part, 1).p] = field.multiply(upper, part, 1);
}

void PackedFloors::add(const Tensor& packed, const Tensor& upper, const Field& field) {
  for (size_t i = 0; i < packed.reals.size() && i < upper.reals.size(); ++i)
    if (packed.reals[i].isNumber() && upper.reals[i].isNumber())
      add(packed.reals[i], upper.reals[i], field);
}

const Exact* PackedFloors::floorOf(const Exact& number) const {
  const auto found = number.isNumber() ? floors.find(number.p) : floors.end();
  return found == floors.end() ? nullptr : &found->second;
}

WrittenMultiplier::WrittenMultiplier(Arithmetic& shared)
    : math(shared), magnitude(nameHash("Abs")), roundedUp(nameHash("Ceil")) {}

Exact WrittenMultiplier::of(llvm::ArrayRef<Exact> numbers, const Exact& scale) const {
  const Field& field = math.field;
  ExactBound largest(field, /*isMaximum=*/true);
  for (const Exact& number : numbers)
    largest.add(field.unknown(magnitude, {number}));
  const Exact whole = field.multiply(scale, math.constants.constant(FourBitRow::largestCode), 1);
  const Exact ratio = field.multiply(largest.bound(), field.invert(whole));
  ExactBound atLeast(field, /*isMaximum=*/true), atMost(field, /*isMaximum=*/false);
  atLeast.add(field.unknown(roundedUp, {ratio}));
  atLeast.add(math.constants.constant(1));
  atMost.add(atLeast.bound());
  atMost.add(math.constants.constant(FourBitRow::largestMultiplier));
  return atMost.bound();
}

Ref packedRows(const Ref& rows, const Ref& scales, Arithmetic& math,
               llvm::function_ref<Exact(size_t row, int64_t group, llvm::ArrayRef<Exact> numbers)>
                   multiplierOf) {
  const Field& field = math.field;
  const FourBitRow layout{rows->shape.back()};
  const Exact offset = field.integer(FourBitRow::codeOffset), weight = field.integer(above);
  const int64_t width = layout.columns, half = layout.halfGroup();
  auto result = std::make_shared<Tensor>();
  result->shape = rows->shape;
  result->shape.back() = layout.bytes();
  for (size_t row = 0; row < scales->reals.size(); ++row)
    for (int64_t group = 0; group < layout.groups(); ++group) {
      std::vector<Exact> numbers;
      for (int64_t i = group * 2 * half; i < (group + 1) * 2 * half; ++i)
        numbers.push_back(i < width ? rows->reals[row * size_t(width) + size_t(i)] : Exact{});
      const Exact multiplier = multiplierOf(row, group, numbers);
      const Exact unit = field.invert(field.multiply(scales->reals[row], multiplier));
      auto stored = [&](int64_t i) {
        return field.add(field.multiply(numbers[size_t(i)], unit), offset);
      };
      for (int64_t i = 0; i < half; ++i) {
        const Exact upper = field.multiply(stored(half + i), weight, 1);
        const Exact both = field.add(stored(i), upper);
        if (both.isNumber() && upper.isNumber())
          math.floors.add(both, upper, field);
        result->reals.push_back(both);
      }
      result->reals.push_back(multiplier);
    }
  return result;
}

} // namespace kvopt::check
