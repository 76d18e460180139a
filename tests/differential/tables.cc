// The list of tables, the kernels, and comparisons that the tables share.
#include "tests/differential/tables.h"

#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include <cmath>
#include <limits>

namespace kvopt::differential {
using namespace ir;
using namespace runtime;

llvm::ArrayRef<Table> tables() {
  static constexpr Table all[] = {
      {"definition", compareDefinitions}, {"shape", compareShapes},
      {"symbols", compareSymbols},        {"check", compareCheck},
      {"fields", compareFields},          {"hollow", compareHollow},
      {"numbers", compareNumbers},        {"forms", compareForms},
  };
  return all;
}

namespace {

std::unique_ptr<const KernelRegistry> filledRegistry(bool prefersDefinitions) {
  auto filled = std::make_unique<KernelRegistry>();
  registerAll(*filled);
  if (prefersDefinitions)
    filled->preferDefinitions();
  return filled;
}
const KernelRegistry& kernels() {
  static const std::unique_ptr<const KernelRegistry> registry = filledRegistry(false);
  return *registry;
}
const KernelRegistry& definitions() {
  static const std::unique_ptr<const KernelRegistry> registry = filledRegistry(true);
  return *registry;
}

/// Distance between 1 and the next number of a floating-point type.
Number unitOf(ElementType type) {
  switch (type) {
  case ElementType::Double:
    return std::numeric_limits<double>::epsilon();
  case ElementType::Float16:
    return 0x1p-10;
  case ElementType::BFloat16:
    return 0x1p-7;
  default:
    return std::numeric_limits<float>::epsilon();
  }
}

/// The results of the node, and whether a definition computed them.
llvm::Expected<std::vector<Numbers>> resultsFrom(const KernelRegistry& registry,
                                                 const Instance& instance, bool& isDefined) {
  const InstanceModel made = modelOf(instance);
  ExecutorOptions options;
  options.threads = 1;
  auto executor = Executor::create(*made.model, registry, options);
  if (!executor)
    return executor.takeError();
  std::vector<std::vector<std::byte>> bytes;
  std::vector<TensorView> views;
  for (const Operand& operand : instance.operands)
    if (operand.isPresent) {
      bytes.push_back(bytesOf(operand.numbers));
      bytes.back().reserve(1); // an address for tensors without elements
      views.push_back(TensorView::contiguous(operand.numbers.type, operand.numbers.extents,
                                             bytes.back().data()));
    }
  auto computed = (*executor)->run(views);
  if (!computed)
    return computed.takeError();
  std::vector<Numbers> results;
  for (const runtime::Tensor& tensor : *computed)
    results.push_back(numbersIn(tensor.view.element,
                                Extents(tensor.view.shape.begin(), tensor.view.shape.end()),
                                tensor.view.data));
  isDefined = !(*executor)->statistics().definedNodes.empty();
  return results;
}

} // namespace

llvm::Expected<std::vector<Numbers>> kernelResults(const Instance& instance) {
  const Kernel* kernel = kernels().find(OpName(instance.op), instance.opset);
  if (kernel && kernel->definition)
    return unsupported("the runtime has no kernel, but a definition");
  bool isDefined = false;
  return resultsFrom(kernels(), instance, isDefined);
}

std::vector<Numbers> definedResults(const Instance& instance) {
  bool isDefined = false;
  auto results = resultsFrom(definitions(), instance, isDefined);
  if (results)
    return *results;
  llvm::consumeError(results.takeError());
  return {};
}

Verdict compareDefinitions(const Instance& instance, llvm::ArrayRef<Numbers> expected, Dice&) {
  bool isDefined = false;
  auto results = resultsFrom(definitions(), instance, isDefined);
  if (!results)
    return Verdict::notThere(takeDiagnostic(results.takeError()).message);
  if (!isDefined)
    return Verdict::notThere("it is not defined");
  for (unsigned k = 0; k < results->size() && k < expected.size(); ++k) {
    const Numbers& found = (*results)[k];
    if (std::string difference = differenceOf(k, expected[k], found.extents); !difference.empty())
      return Verdict::of(difference);
    for (size_t element = 0; element < found.elements.size(); ++element)
      if (std::string difference =
              differenceOf(instance, k, expected[k], element, found.elements[element]);
          !difference.empty())
        return Verdict::of(difference);
  }
  return Verdict::of("");
}

Dim Symbols::dimOf(int64_t extent) {
  const size_t kind = dice.below(4);
  if (kind == 0)
    return Dim::fixed(extent);
  const int64_t added = kind == 1 ? dice.between(0, extent) : 0;
  const int64_t value = extent - added;
  std::string symbol = kind == 2 ? formatted("S{}", values.size()) : formatted("E{}", value);
  values.emplace_back(symbol, value);
  return Dim::symbol(symbol) + Dim::fixed(added);
}

TensorType Symbols::typeOf(const Numbers& numbers) {
  Shape shape;
  for (int64_t extent : numbers.extents)
    shape.push_back(dimOf(extent));
  return TensorType(numbers.type, std::move(shape));
}

Value& Symbols::inputOf(Graph& graph, const Instance& instance, unsigned operand) {
  return graph.addInput(formatted("x{}", operand), typeOf(instance.operands[operand].numbers));
}

std::optional<int64_t> Symbols::valueOf(llvm::StringRef symbol) const {
  for (const auto& [name, value] : values)
    if (name == symbol)
      return value;
  return std::nullopt;
}

bool isSame(const Instance& instance, ElementType type, Number expected, Number found) {
  if (expected == found || (std::isnan(expected) && std::isnan(found)))
    return true;
  if (instance.accuracy == Accuracy::Exact || !isFloatingPoint(type))
    return false;
  // Each of a few operators rounds by half a unit, and approximations of functions by a few.
  constexpr Number units = 16;
  const Number largest = std::max({Number(1), instance.magnitude, std::abs(expected)});
  return std::abs(expected - found) <= units * unitOf(type) * largest;
}

std::string textOf(llvm::ArrayRef<int64_t> extents) {
  std::string text = "[";
  for (int64_t extent : extents)
    text += (text.size() == 1 ? "" : ",") + std::to_string(extent);
  return text + "]";
}

std::string differenceOf(unsigned result, const Numbers& expected,
                         llvm::ArrayRef<int64_t> extents) {
  if (extents == llvm::ArrayRef<int64_t>(expected.extents))
    return "";
  return formatted("result {} is {}, not {}", result, textOf(extents), textOf(expected.extents));
}

std::string differenceOf(const Instance& instance, unsigned result, const Numbers& expected,
                         size_t element, Number found) {
  const Number right = expected.elements[element];
  if (isSame(instance, expected.type, right, found))
    return "";
  return formatted("element {} of result {} is {}, not {}", element, result,
                   static_cast<double>(found), static_cast<double>(right));
}

} // namespace kvopt::differential
