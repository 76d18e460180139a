// Instances as models and as text.
#include "tests/differential/instance.h"

#include "ir/op.h"
#include "ir/text/printer.h"
#include "support/format.h"
#include "support/half.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace kvopt::differential {
using namespace ir;

namespace {

struct Half {
  uint16_t bits = 0;
};
struct Brain {
  uint16_t bits = 0;
};
struct Truth {
  uint8_t byte = 0;
};

Number widened(Half half) { return f16ToFloat(half.bits); }
Number widened(Brain brain) { return bf16ToFloat(brain.bits); }
Number widened(Truth truth) { return truth.byte; }
template <class T> Number widened(T number) { return number; }

/// The number modulo 2^64, in the bits of the type.
template <class T> T integerOf(Number number) {
  const Number rest = std::fmod(number, 0x1p64L);
  const auto bits = static_cast<uint64_t>(std::abs(rest));
  return static_cast<T>(rest < 0 ? 0 - bits : bits);
}

template <class T> T narrowed(Number number) {
  if constexpr (std::is_same_v<T, Half>)
    return {floatToF16(static_cast<float>(number))};
  else if constexpr (std::is_same_v<T, Brain>)
    return {floatToBf16(static_cast<float>(number))};
  else if constexpr (std::is_same_v<T, Truth>)
    return {static_cast<uint8_t>(number != 0 ? 1 : 0)};
  else if constexpr (std::is_integral_v<T>)
    return integerOf<T>(number);
  else
    return static_cast<T>(number);
}

/// Calls `visit` with a value of the type that holds elements in memory.
template <class Visit> auto withStorage(ElementType type, const Visit& visit) {
  switch (type) {
  case ElementType::Double:
    return visit(double());
  case ElementType::Float16:
    return visit(Half());
  case ElementType::BFloat16:
    return visit(Brain());
  case ElementType::Int64:
    return visit(int64_t());
  case ElementType::UInt64:
    return visit(uint64_t());
  case ElementType::Int32:
    return visit(int32_t());
  case ElementType::UInt32:
    return visit(uint32_t());
  case ElementType::Int16:
    return visit(int16_t());
  case ElementType::UInt16:
    return visit(uint16_t());
  case ElementType::Int8:
    return visit(int8_t());
  case ElementType::UInt8:
    return visit(uint8_t());
  case ElementType::Bool:
    return visit(Truth());
  default:
    return visit(float());
  }
}

const OpRegistry& operators() {
  static const std::unique_ptr<const OpRegistry> registry = [] {
    auto filled = std::make_unique<OpRegistry>();
    registerAll(*filled);
    return filled;
  }();
  return *registry;
}

std::string nameOf(unsigned operand) { return formatted("x{}", operand); }

} // namespace

int64_t countOf(const Extents& extents) {
  int64_t count = 1;
  for (int64_t extent : extents)
    count *= extent;
  return count;
}

Number stored(ElementType type, Number number) {
  return withStorage(
      type, [&](auto storage) -> Number { return widened(narrowed<decltype(storage)>(number)); });
}

std::vector<std::byte> bytesOf(const Numbers& numbers) {
  return withStorage(numbers.type, [&](auto storage) {
    using T = decltype(storage);
    std::vector<std::byte> bytes(numbers.elements.size() * sizeof(T));
    for (size_t i = 0; i < numbers.elements.size(); ++i) {
      const T element = narrowed<T>(numbers.elements[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
    return bytes;
  });
}

Numbers numbersIn(ElementType type, const Extents& extents, const std::byte* bytes) {
  Numbers numbers{type, extents, std::vector<Number>(static_cast<size_t>(countOf(extents)))};
  withStorage(type, [&](auto storage) {
    using T = decltype(storage);
    for (size_t i = 0; i < numbers.elements.size(); ++i) {
      T element;
      std::memcpy(&element, bytes + i * sizeof(T), sizeof(T));
      numbers.elements[i] = widened(element);
    }
    return 0;
  });
  return numbers;
}

std::string textOf(const Numbers& numbers) {
  std::string text = onnxName(numbers.type).str() + "[";
  for (size_t i = 0; i < numbers.extents.size(); ++i)
    text += (i == 0 ? "" : ",") + std::to_string(numbers.extents[i]);
  text += "] {";
  constexpr size_t most = 64;
  for (size_t i = 0; i < std::min(most, numbers.elements.size()); ++i)
    text += formatted("{}{}", i == 0 ? "" : ", ", static_cast<double>(numbers.elements[i]));
  return text + (numbers.elements.size() > most ? ", …}" : "}");
}

Instance& Instance::select(std::vector<int64_t> list) {
  return select(listOf(ElementType::Int64, list));
}

Value& inputOf(Graph& graph, const Instance& instance, unsigned operand) {
  const Numbers& numbers = instance.operands[operand].numbers;
  return graph.addInput(nameOf(operand), TensorType::fixed(numbers.type, numbers.extents));
}

Value& constantOf(Graph& graph, const Instance& instance, unsigned operand) {
  const Numbers& numbers = instance.operands[operand].numbers;
  return graph.addInitializer(
      nameOf(operand), llvm::cantFail(makeTensor(numbers.type, numbers.extents, bytesOf(numbers))));
}

InstanceModel modelOf(const Instance& instance,
                      llvm::function_ref<Value&(Graph&, unsigned operand)> valueOf) {
  InstanceModel made;
  made.model = std::make_unique<Model>(operators());
  made.model->opsets = {{"", instance.opset}, {kvoptDomain, 1}, {"com.microsoft", 1}};
  Graph& graph = made.model->graph();
  for (unsigned i = 0; i < instance.operands.size(); ++i)
    made.values.push_back(instance.operands[i].isPresent ? &valueOf(graph, i) : nullptr);
  made.node = &graph.createFresh(OpName(instance.op), made.values, instance.results, nullptr, "y");
  for (const auto& [name, attribute] : instance.attributes)
    made.node->setAttribute(name, attribute->clone());
  for (Value& result : made.node->results())
    graph.addOutput(result);
  return made;
}

InstanceModel modelOf(const Instance& instance) {
  return modelOf(instance, [&](Graph& graph, unsigned operand) -> Value& {
    return inputOf(graph, instance, operand);
  });
}

std::string textOf(const Instance& instance) {
  const InstanceModel made = modelOf(instance);
  std::string text = formatted("opset {}: {}", instance.opset, printText(*made.node));
  for (unsigned i = 0; i < instance.operands.size(); ++i)
    if (instance.operands[i].isPresent)
      text += formatted("\n    {} = {}", nameOf(i), textOf(instance.operands[i].numbers));
  return text;
}

Numbers distinct(Dice& dice, Wanted wanted) {
  Numbers numbers{wanted.type, std::move(wanted.extents), {}};
  const auto count = static_cast<size_t>(countOf(numbers.extents));
  const int64_t first = dice.between(1, 3);
  for (int64_t number : dice.shuffled(count))
    numbers.elements.push_back(
        stored(wanted.type, wanted.type == ElementType::Bool ? number % 2 : number + first));
  return numbers;
}

Numbers integers(Dice& dice, Wanted wanted, int64_t low, int64_t high) {
  Numbers numbers{wanted.type, std::move(wanted.extents), {}};
  const int64_t count = countOf(numbers.extents);
  for (int64_t i = 0; i < count; ++i)
    numbers.elements.push_back(stored(wanted.type, static_cast<Number>(dice.between(low, high))));
  return numbers;
}

Numbers varied(Dice& dice, Wanted wanted) {
  constexpr int64_t most = 5;
  const ElementType type = wanted.type;
  Numbers numbers = integers(dice, std::move(wanted), -most, most);
  const bool isWide = isInteger(type) && dice.oneIn(2);
  const unsigned bits = bitWidth(type).value_or(1);
  for (Number& number : numbers.elements) {
    if (isFloatingPoint(type) && dice.oneIn(2))
      number = static_cast<Number>(dice.between(-4 * most, 4 * most)) / 4;
    if (isWide && dice.oneIn(2)) {
      const Number end = std::ldexp(Number(1), static_cast<int>(bits) - (dice.oneIn(2) ? 1 : 0));
      number = stored(type, end >= std::ldexp(Number(1), 64)
                                ? Number(std::numeric_limits<uint64_t>::max())
                                : end - static_cast<Number>(dice.between(0, 3)));
    }
  }
  return numbers;
}

Numbers special(Dice& dice, Wanted wanted) {
  Numbers numbers = varied(dice, std::move(wanted));
  using Limits = std::numeric_limits<Number>;
  for (Number& number : numbers.elements)
    if (isFloatingPoint(numbers.type) && dice.oneIn(2))
      number = dice.anyOf({Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()});
  return numbers;
}

Numbers any(Dice& dice, Wanted wanted) {
  return dice.oneIn(6) ? special(dice, std::move(wanted)) : varied(dice, std::move(wanted));
}

Numbers listOf(ElementType type, const std::vector<int64_t>& list) {
  Numbers numbers{type, {static_cast<int64_t>(list.size())}, {}};
  for (int64_t number : list)
    numbers.elements.push_back(stored(type, static_cast<Number>(number)));
  return numbers;
}

Numbers scalarOf(ElementType type, Number value) { return {type, {}, {stored(type, value)}}; }

ElementType integerType(Dice& dice) {
  using enum ElementType;
  return dice.anyOf({Int64, Int64, Int32, Int32, Int16, Int8, UInt8, UInt16, UInt32, UInt64});
}

ElementType floatType(Dice& dice) {
  using enum ElementType;
  return dice.anyOf({Float, Float, Float, Double, Float16, BFloat16});
}

ElementType numericType(Dice& dice) {
  // Shape rules follow the contents of int64.
  return dice.oneIn(4) ? ElementType::Int64 : dice.oneIn(2) ? floatType(dice) : integerType(dice);
}

ElementType anyType(Dice& dice) { return dice.oneIn(6) ? ElementType::Bool : numericType(dice); }

} // namespace kvopt::differential
