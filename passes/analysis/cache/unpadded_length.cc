// Evaluates integer tensors of equal elements, with ones for masks.
#include "passes/analysis/cache/unpadded_length.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "passes/analysis/movement/uniform_value.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Maximum depth; exporters write a length in about half a dozen nodes.
constexpr unsigned deepestNode = 32;

class LengthReader {
public:
  LengthReader(const Dim& pastKeys, const Dim& newKeys)
      : keys(pastKeys + newKeys), tokens(newKeys) {}

  /// The number that all elements equal.
  Dim read(const Value& value, unsigned depth = 0) {
    if (depth > deepestNode || !isInteger(value.type().elementType()))
      return Dim::unknown();
    if (const std::optional<double> number = uniformValue(value))
      return std::fabs(*number) < 0x1p53 ? Dim::fixed(static_cast<int64_t>(*number))
                                         : Dim::unknown();
    if (const auto known = value.knownIntegers();
        known && !known->empty() &&
        llvm::all_of(*known, [&](const Dim& each) { return each.isKnownEqual(known->front()); }))
      return known->front();
    if (value.isGraphInput())
      return readMask(value);
    const Node* node = value.producer();
    return node ? readNode(*node, depth) : Dim::unknown();
  }

  llvm::SmallSetVector<const Value*, 2> masks;

private:
  bool isMask(const Value& value) const {
    return value.isGraphInput() && !value.initializer() && isInteger(value.type().elementType()) &&
           value.type().hasRank() && value.type().rank() == 2 &&
           !value.type().dim(1).isKnownEqual(tokens);
  }

  Dim readMask(const Value& value) {
    if (!isMask(value))
      return Dim::unknown();
    masks.insert(&value);
    return Dim::fixed(1);
  }

  Dim readNode(const Node& node, unsigned depth) {
    if (node.is("ReduceSum"))
      return readSum(node, depth);
    if (const std::optional<MovementKind> kind = movementKind(node))
      return *kind == MovementKind::Concat ? Dim::unknown() : read(*movedOperand(node), depth + 1);
    if (node.operands().size() != 2 || !node.operand(0) || !node.operand(1))
      return Dim::unknown();
    const std::optional<ElementFunction> function = elementFunction(node);
    if (function != ElementFunction::Sum && function != ElementFunction::Product &&
        function != ElementFunction::Bound)
      return Dim::unknown();
    const Dim a = read(*node.operand(0), depth + 1);
    const Dim b = read(*node.operand(1), depth + 1);
    if (node.is("Add"))
      return a + b;
    if (node.is("Sub"))
      return a - b;
    if (node.is("Mul"))
      return a * b;
    const bool isMax = node.is("Max");
    if (!isMax && !node.is("Min"))
      return Dim::unknown();
    if (a.isKnownLessEqual(b))
      return isMax ? b : a;
    if (b.isKnownLessEqual(a))
      return isMax ? a : b;
    return Dim::unknown();
  }

  /// A sum over one axis.
  Dim readSum(const Node& node, unsigned depth) {
    const Value& summed = *node.operand(0);
    if (!summed.type().hasRank())
      return Dim::unknown();
    const auto rank = static_cast<int64_t>(summed.type().rank());
    std::optional<int64_t> axis;
    if (const auto written = node.intsAttr("axes"); written && written->size() == 1)
      axis = written->front();
    else if (node.operands().size() > 1 && node.operand(1))
      if (const auto known = node.operand(1)->knownIntegers(); known && known->size() == 1)
        axis = known->front().value();
    if (!axis || *axis < -rank || *axis >= rank)
      return Dim::unknown();
    const int64_t position = *axis < 0 ? *axis + rank : *axis;
    const Dim each = read(summed, depth + 1);
    // A mask has a one for each key, and its extent is the number of keys.
    const Value* source = &summed;
    while (source->producer() &&
           movementKind(*source->producer()) == std::optional(MovementKind::Convert))
      source = movedOperand(*source->producer());
    return each * (isMask(*source) && position == 1
                       ? keys
                       : summed.type().dim(static_cast<unsigned>(position)));
  }

  Dim keys;
  Dim tokens;
};

} // namespace

std::optional<UnpaddedLength> unpaddedLength(const Value& value, const Dim& past,
                                             const Dim& tokens) {
  LengthReader reader(past, tokens);
  const Dim length = reader.read(value);
  if (length.isUnknown())
    return std::nullopt;
  return UnpaddedLength{length, std::move(reader.masks)};
}

} // namespace kvopt::analysis
