// Walks from a value to the constant that it repeats.
#include "passes/analysis/movement/uniform_value.h"

#include "ir/movement.h"
#include "support/half.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr unsigned mostSteps = 8;
constexpr int64_t mostElements = 4096;

template <class Numbers> std::optional<double> onlyNumber(const std::optional<Numbers>& numbers) {
  if (!numbers || numbers->empty())
    return std::nullopt;
  for (auto number : *numbers)
    if (!(number == numbers->front()))
      return std::nullopt;
  return static_cast<double>(numbers->front());
}

std::optional<double> onlyNumberOf(const TensorData& tensor) {
  if (isFloatingPoint(tensor.elementType()))
    return onlyNumber(floatValues(tensor, mostElements));
  return onlyNumber(integerValues(tensor, mostElements));
}

} // namespace

std::optional<double> roundedTo(ElementType type, double number) {
  switch (type) {
  case ElementType::Double:
    return number;
  case ElementType::Float:
    return static_cast<double>(static_cast<float>(number));
  case ElementType::Float16:
    return static_cast<double>(f16ToFloat(floatToF16(static_cast<float>(number))));
  case ElementType::BFloat16:
    return static_cast<double>(bf16ToFloat(floatToBf16(static_cast<float>(number))));
  default:
    return std::nullopt;
  }
}

std::optional<double> uniformValue(const Value& value) {
  llvm::SmallVector<ElementType, 4> casts; // outermost first
  const Value* current = &value;
  std::optional<double> number;
  for (unsigned step = 0; !number; ++step) {
    if (const TensorData* tensor = current->constant()) {
      number = onlyNumberOf(*tensor);
      if (!number)
        return std::nullopt;
      break;
    }
    const Node* producer = current->producer();
    if (!producer || step == mostSteps)
      return std::nullopt;
    if (producer->is("ConstantOfShape")) {
      const Attribute* written = producer->attribute("value");
      if (written && (written->isReference() || written->kind() != AttributeKind::Tensor))
        return std::nullopt;
      number = written ? onlyNumberOf(*written->tensorValue()) : 0.0;
      if (!number)
        return std::nullopt;
      break;
    }
    std::optional<MovementKind> kind = movementKind(*producer);
    if (kind == MovementKind::Convert)
      casts.push_back(current->type().elementType());
    else if (!kind || !picksElements(*kind))
      return std::nullopt;
    current = movedOperand(*producer);
  }
  while (!casts.empty() && number) {
    ElementType type = casts.pop_back_val();
    number = type == ElementType::Bool ? (*number != 0.0 ? 1.0 : 0.0) : roundedTo(type, *number);
  }
  return number;
}

} // namespace kvopt::analysis
