// Walks from numbers back to the booleans that they were cast from.
#include "passes/analysis/mask/truth_value.h"

#include "ir/movement.h"
#include "passes/analysis/movement/uniform_value.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr unsigned mostSteps = 8;
constexpr int64_t mostElements = int64_t{1} << 24;

bool holdsZerosAndOnes(const TensorData& tensor) {
  auto isTruth = [](auto number) { return number == 0 || number == 1; };
  if (isFloatingPoint(tensor.elementType())) {
    auto reals = floatValues(tensor, mostElements);
    return reals && llvm::all_of(*reals, isTruth);
  }
  auto integers = integerValues(tensor, mostElements);
  return integers && llvm::all_of(*integers, isTruth);
}

bool isSameTruth(const Value& a, const Value& b) {
  if (&a == &b)
    return true;
  const Node* first = a.producer();
  const Node* second = b.producer();
  return first && second && first->is("Cast") && second->is("Cast") &&
         first->operand(0) == second->operand(0);
}

/// The value of `penalty` where `kept` is 0, if it is 0 where `kept` is 1: c * (1 - kept), or c *
/// (kept - 1).
std::optional<double> penaltyWithout(const Value& kept, const Value& penalty) {
  const Node* product = penalty.producer();
  if (!product || !product->is("Mul"))
    return std::nullopt;
  for (unsigned i : {0u, 1u}) {
    const Value* factor = product->operand(i);
    const Value* gate = product->operand(1 - i);
    std::optional<double> number = factor ? uniformValue(*factor) : std::nullopt;
    const Node* difference = number && gate ? gate->producer() : nullptr;
    if (!difference || !difference->is("Sub") || !difference->operand(0) || !difference->operand(1))
      continue;
    const Value& from = *difference->operand(0);
    const Value& taken = *difference->operand(1);
    if (isSameTruth(taken, kept) && uniformValue(from) == 1.0)
      return *number;
    if (isSameTruth(from, kept) && uniformValue(taken) == 1.0)
      return -*number;
  }
  return std::nullopt;
}

} // namespace

bool isZeroOrOne(const Value& value) {
  const Value* current = &value;
  for (unsigned step = 0; current && step < mostSteps; ++step) {
    if (current->type().elementType() == ElementType::Bool)
      return true;
    if (const TensorData* tensor = current->constant())
      return holdsZerosAndOnes(*tensor);
    const Node* producer = current->producer();
    if (!producer)
      return false;
    std::optional<MovementKind> kind = movementKind(*producer);
    if (!kind || !(kind == MovementKind::Convert || picksElements(*kind)))
      return false;
    current = movedOperand(*producer);
  }
  return false;
}

Value& truthOf(Value& value) {
  Value* current = &value;
  for (unsigned step = 0; step < mostSteps; ++step) {
    if (current->type().elementType() == ElementType::Bool)
      return *current;
    Node* producer = current->producer();
    if (!producer || !producer->is("Cast") || !producer->operand(0))
      return value;
    current = producer->operand(0);
  }
  return value;
}

std::optional<GatedScores> gatedScores(const Node& sum) {
  const bool subtracts = sum.is("Sub");
  if (!subtracts && !sum.is("Add"))
    return std::nullopt;
  for (unsigned side : {0u, 1u}) {
    if (subtracts && side == 1)
      break;
    Value* gated = sum.operand(side);
    const Value* penalty = sum.operand(1 - side);
    Node* product = gated ? gated->producer() : nullptr;
    if (!product || !product->is("Mul") || !penalty)
      continue;
    for (unsigned i : {1u, 0u}) {
      Value* kept = product->operand(i);
      if (!kept || !product->operand(1 - i))
        continue;
      std::optional<double> fill = penaltyWithout(*kept, *penalty);
      if (fill && isZeroOrOne(*kept))
        return GatedScores{product, 1 - i, kept, subtracts ? -*fill : *fill};
    }
  }
  return std::nullopt;
}

} // namespace kvopt::analysis
