// Finds numbers that count, and values computed from them.
#include "passes/extents/freed_numbers.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "passes/analysis/tokens/row_operators.h"
#include "passes/extents/freed_tables.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace kvopt::extents {
using namespace analysis;
using namespace builders;
using namespace ir;

namespace {

/// First number and length of a constant that counts along one axis and has no other axes. A single
/// integer counts itself.
std::optional<std::pair<int64_t, int64_t>> countedBy(const TensorData& tensor) {
  const int64_t count = tensor.elementCount();
  if (count < 1 || tensor.shape().empty() ||
      (count == 1 && tensor.elementType() != ElementType::Int64) ||
      llvm::none_of(tensor.shape(), [&](int64_t extent) { return extent == count; }))
    return std::nullopt;
  const auto counts = [&](const auto& numbers) -> std::optional<std::pair<int64_t, int64_t>> {
    if (!numbers)
      return std::nullopt;
    const auto lowest = static_cast<double>((*numbers)[0]);
    if (!(lowest >= 0 && lowest <= std::numeric_limits<int32_t>::max()))
      return std::nullopt;
    const auto first = static_cast<int64_t>(lowest);
    for (int64_t i = 0; i < count; ++i)
      if (static_cast<double>((*numbers)[static_cast<size_t>(i)]) != static_cast<double>(first + i))
        return std::nullopt;
    return std::pair(first, count);
  };
  return isFloatingPoint(tensor.elementType()) ? counts(floatValues(tensor))
                                               : counts(integerValues(tensor));
}

/// Whether a reader uses the elements themselves. An operand that controls a movement of other
/// elements does not count.
bool readsNumbers(const Use& use) {
  const Node& reader = use.user();
  return isMoved(use) || elementFunction(reader) || isRowProduct(reader) ||
         (reader.is("Gather") && use.operandIndex() == 1);
}

/// Whether a reader of integers, and all values computed from its result, only move them or add and
/// multiply them until `ends` accepts the use.
bool leadsOnlyTo(const Use& use, llvm::function_ref<bool(const Use&)> ends) {
  llvm::SmallVector<const Use*, 8> pending(1, &use);
  llvm::DenseSet<const Node*> seen;
  while (!pending.empty()) {
    const Use& next = *pending.pop_back_val();
    const Node& reader = next.user();
    if (ends(next) || reader.is("Shape"))
      continue;
    if (!isMoved(next) && !reader.is("Add") && !reader.is("Sub") && !reader.is("Mul"))
      return false;
    if (reader.result().isGraphOutput() || reader.result().isUnused())
      return false;
    if (seen.insert(&reader).second)
      for (const Use& further : reader.result().uses())
        pending.push_back(&further);
  }
  return true;
}

/// Whether integers are compared to determine visible keys; equality does not count.
bool isCompared(const Use& use) {
  return elementFunction(use.user()) == ElementFunction::Comparison && !use.user().is("Equal");
}

/// Whether integers are indices into an input.
bool isPlaceInInput(const Use& use) { return pickedInput(use) != nullptr; }

} // namespace

void FreedNumbers::count(Value& constant) {
  const auto counts = countedBy(*constant.constant());
  if (!counts)
    return;
  if (counts->second == 1)
    return countOne(constant, counts->first);
  const auto range =
      symbols.counted(Dim::fixed(counts->first), Dim::fixed(counts->first + counts->second));
  const llvm::ArrayRef<int64_t> shape = constant.constant()->shape();
  const auto* axis = llvm::find(shape, counts->second);
  if (range)
    countFor(constant, *range, static_cast<unsigned>(axis - shape.begin()), readsNumbers);
}

/// A single number may be the position of the only token, if it is compared with those of keys, or
/// of the only batch row, if it selects an entry of it.
void FreedNumbers::countOne(Value& constant, int64_t number) {
  const auto rank = static_cast<unsigned>(constant.constant()->shape().size());
  const auto range = symbols.counted(Dim::fixed(number), Dim::fixed(number + 1));
  if (range)
    countFor(constant, *range, rank > 1 ? rank - 2 : 0,
             [](const Use& use) { return leadsOnlyTo(use, isCompared); });
  if (number == 0 && symbols.exported().batch.value() == 1 &&
      symbols.isFreed(symbols.freed().batch))
    countFor(constant, {Dim::fixed(0), symbols.freed().batch}, 0,
             [](const Use& use) { return leadsOnlyTo(use, isPlaceInInput); });
  // In a mask that is read as one list, batch row b begins at b times the number of keys.
  if (number > 1 && Dim::fixed(number) == symbols.exported().keys())
    for (Use* use : usesOf(constant, [](const Use& reader) {
           return reader.user().is("Mul") && leadsOnlyTo(reader, isPlaceInInput);
         }))
      if (Value* keys = symbols.scalar(symbols.freed().keys(), constant.type().elementType()))
        use->user().setOperand(use->operandIndex(), keys);
}

void FreedNumbers::countComputed(Value& value) {
  const auto known = value.knownIntegers();
  if (value.constant() || value.type().rank() != 1 || !known || known->size() != 1)
    return;
  const Dim& number = known->front();
  if (const auto range = symbols.counted(number, number + Dim::fixed(1)))
    countFor(value, *range, 0, [](const Use& use) { return leadsOnlyTo(use, isCompared); });
}

llvm::SmallVector<Use*, 4>
FreedNumbers::usesOf(const Value& constant, llvm::function_ref<bool(const Use&)> isMeant) const {
  llvm::SmallVector<Use*, 4> meant;
  for (Use& use : constant.uses())
    if (&use.user().graph() == &graph && isMeant(use))
      meant.push_back(&use);
  return meant;
}

/// Replaces the value, where `isMeant`, by the numbers of a range along one axis.
void FreedNumbers::countFor(Value& counted, const std::pair<Dim, Dim>& range, unsigned axis,
                            llvm::function_ref<bool(const Use&)> isMeant) {
  const llvm::SmallVector<Use*, 4> readers = usesOf(counted, isMeant);
  if (readers.empty())
    return;
  Value* start = symbols.scalar(range.first, ElementType::Int64);
  Value* end = symbols.scalar(range.second, ElementType::Int64);
  if (!start || !end)
    return;
  Value* numbers = &symbols.builder().castTo(
      symbols.builder().node("Range", {*start, *end, int64Scalar(1)}, {}, "freed_range"),
      counted.type().elementType());
  llvm::SmallVector<int64_t, 4> ones;
  for (unsigned other = 0; other < counted.type().rank(); ++other)
    if (other != axis)
      ones.push_back(other);
  if (!ones.empty())
    numbers = &symbols.builder().node("Unsqueeze", {*numbers, ints(ones)}, {}, "freed_range");
  for (Use* use : readers)
    use->user().setOperand(use->operandIndex(), numbers);
}

/// A value computed from constants may have an exported extent.
bool FreedNumbers::freesConstants(Node& node) {
  if (node.is("Range"))
    return freeRange(node);
  if (node.is("ConstantOfShape"))
    return freeList(node, 0);
  if (node.is("Expand"))
    return freeList(node, 1);
  if (node.is("Slice") && node.operand(0)->type().fixedShape())
    return freeTable(node);
  return false;
}

bool FreedNumbers::freeRange(Node& node) {
  llvm::SmallVector<Dim, 3> numbers;
  for (unsigned operand : {0U, 1U, 2U}) {
    const auto number = node.operand(operand)->knownIntegers();
    if (!number || number->size() != 1)
      return false;
    numbers.push_back(symbols.was(number->front()));
  }
  const auto range =
      numbers[2].value() == 1 ? symbols.counted(numbers[0], numbers[1]) : std::nullopt;
  if (!range)
    return false;
  const ElementType type = node.operand(1)->type().elementType();
  Value* start = symbols.scalar(range->first, type);
  Value* end = symbols.scalar(range->second, type);
  if (!start || !end)
    return false;
  node.setOperand(0, start);
  node.setOperand(1, end);
  return true;
}

bool FreedNumbers::freeList(Node& node, unsigned operand) {
  const auto numbers = node.operand(operand)->knownIntegers();
  const auto freed = numbers ? symbols.freedList(*numbers) : std::nullopt;
  Value* shape = freed ? symbols.list(*freed) : nullptr;
  if (shape)
    node.setOperand(operand, shape);
  return shape != nullptr;
}

/// Frees the entries of a table for the positions of tokens or keys.
bool FreedNumbers::freeTable(Node& node) {
  const std::optional<Movement> movement = movementOf(node.result());
  if (!movement || !movement->axis() || movement->ranges.size() != 1 || !node.operand(1) ||
      !node.operand(2))
    return false;
  const MovementRange& kept = movement->ranges.front();
  const auto range = kept.step.known.value() == 1
                         ? symbols.counted(kept.start.known, kept.end.known)
                         : std::nullopt;
  const Dim& rows = node.operand(0)->type().dim(*movement->axis());
  if (!range || rows.isKnownEqual(kept.end.known))
    return false;
  Value* from = symbols.list({range->first});
  Value* to = symbols.list({range->second});
  if (!from || !to)
    return false;
  node.setOperand(1, &symbols.builder().castTo(*from, node.operand(1)->type().elementType()));
  node.setOperand(2, &symbols.builder().castTo(*to, node.operand(2)->type().elementType()));
  return true;
}

} // namespace kvopt::extents
