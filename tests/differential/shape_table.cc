// Shape rules: with fixed extents, and with symbols for extents and for the contents of lists.
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "tests/differential/tables.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::differential {
using namespace ir;

namespace {

using ValueOfSymbol = llvm::function_ref<std::optional<int64_t>(llvm::StringRef)>;

/// How an inferred type and inferred contents differ from a result. `compared` counts what was
/// known.
std::string differenceOf(unsigned index, const Value& result, const Numbers& expected,
                         ValueOfSymbol valueOf, unsigned& compared) {
  const TensorType& type = result.type();
  if (type.elementType() != ElementType::Undefined && type.elementType() != expected.type)
    return formatted("result {} is of type {}, not {}", index, onnxName(type.elementType()).str(),
                     onnxName(expected.type).str());
  if (type.hasRank() && type.rank() != expected.extents.size())
    return formatted("result {} is {}, not {}", index, type.str(), textOf(expected.extents));
  compared += type.hasRank() && type.rank() == 0 ? 1 : 0;
  for (unsigned axis = 0; type.hasRank() && axis < type.rank(); ++axis) {
    const std::optional<int64_t> extent = type.shape()[axis].evaluate(valueOf);
    compared += extent ? 1 : 0;
    if (extent && *extent != expected.extents[axis])
      return formatted("axis {} of result {} is {} = {}, not {}", axis, index,
                       type.shape()[axis].str(), *extent, expected.extents[axis]);
  }
  const auto contents = result.knownIntegers();
  if (contents && contents->size() != expected.elements.size())
    return formatted("result {} has {} elements, not {}", index, contents->size(),
                     expected.elements.size());
  for (size_t i = 0; contents && i < contents->size(); ++i) {
    const std::optional<int64_t> element = (*contents)[i].evaluate(valueOf);
    if (element && static_cast<Number>(*element) != expected.elements[i])
      return formatted("element {} of result {} is {} = {}, not {}", i, index, (*contents)[i].str(),
                       *element, static_cast<double>(expected.elements[i]));
  }
  return "";
}

Verdict compared(const InstanceModel& made, llvm::ArrayRef<Numbers> expected,
                 ValueOfSymbol valueOf) {
  const OpDef* definition = made.node->definition();
  if (!definition || !definition->inferShapes)
    return Verdict::notThere("there is no rule");
  if (llvm::Error error = inferShapes(made.model->graph()))
    return Verdict::notThere(takeDiagnostic(std::move(error)).str());
  unsigned count = 0;
  for (unsigned i = 0; i < expected.size(); ++i)
    if (std::string difference = differenceOf(i, made.node->result(i), expected[i], valueOf, count);
        !difference.empty())
      return Verdict::of(std::move(difference));
  return count == 0 ? Verdict::notThere("no extent is known") : Verdict::of("");
}

/// Whether the operand is a list or a number whose contents rules may read.
bool isList(const Operand& operand) {
  constexpr int64_t longest = 8;
  return isInteger(operand.numbers.type) && operand.numbers.extents.size() <= 1 &&
         operand.numbers.count() <= longest;
}

/// Contents that are computed from extents of another input: the operand is Shape(x) - c, or
/// Size(x) - c for a number.
Value& computedContents(Graph& graph, const Instance& instance, unsigned operand, Symbols& symbols,
                        Dice& dice) {
  const Numbers& wanted = instance.operands[operand].numbers;
  Numbers subtracted = wanted;
  Shape shape;
  for (size_t i = 0; i < wanted.elements.size(); ++i) {
    const auto number = static_cast<int64_t>(wanted.elements[i]);
    const int64_t extent = std::max<int64_t>(number, 0) + (dice.oneIn(2) ? dice.between(0, 3) : 0);
    subtracted.elements[i] = static_cast<Number>(extent - number);
    shape.push_back(symbols.dimOf(extent));
  }
  Value& counted = graph.addInput(formatted("counted{}", operand),
                                  TensorType(ElementType::Float, std::move(shape)));
  const char* op = wanted.extents.empty() ? "Size" : "Shape";
  Node& count = graph.createFresh(OpName(op), {&counted}, 1);
  Value& constant = graph.addConstant(
      "subtracted", llvm::cantFail(makeTensor(wanted.type, wanted.extents, bytesOf(subtracted))));
  return graph.createFresh(OpName("Sub"), {&count.result(), &constant}, 1).result();
}

/// Whether 0 in the operand has another meaning than other extents. Shape rules take unknown
/// extents in the shape of a Reshape for other numbers.
bool isCopied(const Instance& instance, unsigned operand) {
  return instance.op == "Reshape" && operand == 1 &&
         llvm::is_contained(instance.operands[operand].numbers.elements, Number(0));
}

bool isSmall(const Numbers& numbers) {
  constexpr Number largest = 1000;
  return numbers.type == ElementType::Int64 &&
         std::all_of(numbers.elements.begin(), numbers.elements.end(),
                     [&](Number number) { return number > -largest && number < largest; });
}

} // namespace

Verdict compareShapes(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice) {
  const InstanceModel made = modelOf(instance, [&](Graph& graph, unsigned operand) -> Value& {
    const bool isConstant = instance.operands[operand].isSelector ||
                            (isList(instance.operands[operand]) && dice.oneIn(2));
    return isConstant ? constantOf(graph, instance, operand) : inputOf(graph, instance, operand);
  });
  return compared(made, expected, [](llvm::StringRef) { return std::nullopt; });
}

Verdict compareSymbols(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice& dice) {
  Symbols symbols(dice);
  const InstanceModel made = modelOf(instance, [&](Graph& graph, unsigned operand) -> Value& {
    const Operand& given = instance.operands[operand];
    if (isList(given) && isSmall(given.numbers) && !isCopied(instance, operand) && dice.oneIn(2))
      return computedContents(graph, instance, operand, symbols, dice);
    if (given.isSelector && !dice.oneIn(4))
      return constantOf(graph, instance, operand);
    return symbols.inputOf(graph, instance, operand);
  });
  return compared(made, expected, [&](llvm::StringRef symbol) { return symbols.valueOf(symbol); });
}

} // namespace kvopt::differential
