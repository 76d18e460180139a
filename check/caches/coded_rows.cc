// Scales of rows, and rows divided by them.
#include "check/caches/coded_rows.h"

#include "check/arithmetic/call.h"
#include "check/arithmetic/packed_codes.h"

namespace kvopt::check {

Ref firstOfRows(const Ref& rows, unsigned axis) {
  return axis < rows->shape.size() && rows->shape[axis] > 0 ? rowsOf(rows, axis, 0, 1) : nullptr;
}

namespace {

/// Arbitrary numbers of rows that are not new: their scales, or the multipliers of their groups.
class RowNumbers {
public:
  RowNumbers(const CachePair& pair, const char* what, const Step& step, const Field& arithmetic)
      : field(arithmetic),
        first(mixBits(nameHash(pair.before->past + what) + static_cast<uint64_t>(step.past))) {}
  Exact of(int64_t row) const { return field.arbitrary(first + static_cast<uint64_t>(row)); }

private:
  const Field& field;
  uint64_t first;
};

Ref scalesOf(const CachePair& pair, const Ref& rows, const Ref& numbersOfRows, const Step& step,
             Arithmetic& math) {
  const Field& field = math.field;
  const Extents strides = stridesOf(rows->shape);
  const Exact divisor = field.invert(math.constants.constant(pair.largestCode));
  const RowNumbers earlier(pair, " scale", step, field);
  const uint64_t magnitude = nameHash("Abs");
  auto result = std::make_shared<Tensor>();
  result->shape = numbersOfRows->shape;
  size_t next = 0;
  forEachPlace(result->shape, [&](llvm::ArrayRef<int64_t> place) {
    const int64_t row = numbersOfRows->integers[next++];
    if (row != -1) {
      result->reals.push_back(earlier.of(row));
      return;
    }
    int64_t first = 0;
    for (size_t i = 0; i < place.size(); ++i)
      first += place[i] * strides[i];
    ExactBound largest(field, /*isMaximum=*/true);
    for (int64_t i = 0; i < rows->shape[pair.scaleAxis]; ++i)
      largest.add(field.unknown(
          magnitude, {rows->reals[static_cast<size_t>(first + i * strides[pair.scaleAxis])]}));
    result->reals.push_back(field.multiply(largest.bound(), divisor, 1));
  });
  return result;
}

} // namespace

Ref codedRows(const CachePair& pair, const Ref& rows, const Ref& numbersOfRows, const Step& step,
              Arithmetic& math) {
  const Ref scales = scalesOf(pair, rows, numbersOfRows, step, math);
  if (pair.content == RowContent::Scales)
    return scales;
  if (pair.isPacked) {
    const RowNumbers earlier(pair, " multiplier", step, math.field);
    const WrittenMultiplier written(math);
    return packedRows(rows, scales, math,
                      [&](size_t row, int64_t group, llvm::ArrayRef<Exact> numbers) {
                        constexpr int64_t mostGroups = 1 << 16;
                        const int64_t number = numbersOfRows->integers[row];
                        return number == -1 ? written.of(numbers, scales->reals[row])
                                            : earlier.of(number * mostGroups + group);
                      });
  }
  const Ref divisors = broadcastTo(scales, rows->shape);
  auto codes = std::make_shared<Tensor>(*rows);
  for (size_t i = 0; i < codes->reals.size(); ++i)
    codes->reals[i] = math.field.multiply(codes->reals[i], math.field.invert(divisors->reals[i]));
  return codes;
}

} // namespace kvopt::check
