// float16 inside, float32 at the edge: what converters write that keep the types of inputs and
// outputs.
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"
#include "support/half.h"
#include "tests/transformations/transformation.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvopt {
using namespace ir;

namespace {

constexpr float largestHalf = 65504;

/// Finite numbers stay finite.
llvm::Expected<TensorRef> narrowed(const TensorRef& tensor) {
  auto bytes = tensor->bytes();
  if (!bytes)
    return bytes.takeError();
  const auto count = static_cast<size_t>(tensor->elementCount());
  std::vector<std::byte> halves(count * 2);
  for (size_t i = 0; i < count; ++i) {
    float number = 0;
    std::memcpy(&number, bytes->data() + 4 * i, 4);
    if (std::isfinite(number))
      number = std::clamp(number, -largestHalf, largestHalf);
    const uint16_t half = floatToF16(number);
    std::memcpy(halves.data() + 2 * i, &half, 2);
  }
  return makeTensor(ElementType::Float16, tensor->shape(), std::move(halves));
}

bool isFloat(const Value* value) {
  return value && value->type().elementType() == ElementType::Float;
}

Value& cast(Graph& graph, Value& value, ElementType to, Node* before) {
  Node& node = graph.createFresh("Cast", {&value}, 1, before, "cast");
  node.setAttribute("to", Attribute::ofInt(static_cast<int64_t>(to)));
  TensorType type = value.type();
  type.setElementType(to);
  node.result().setType(type);
  return node.result();
}

/// Operators that converters leave in float32.
bool staysWide(const Node& node) { return node.is("Range") || node.is("CumSum"); }

llvm::Error narrowAttributes(Node& node) {
  if (node.is("Cast") && node.intAttr("to", 0) == static_cast<int64_t>(ElementType::Float))
    node.setAttribute("to", Attribute::ofInt(static_cast<int64_t>(ElementType::Float16)));
  if (!node.is("Constant") && !node.is("ConstantOfShape"))
    return llvm::Error::success();
  TensorRef contents;
  if (node.is("Constant"))
    contents = node.result().constantRef();
  else if (const Attribute* value = node.attribute("value"))
    contents = value->tensorValue();
  else
    contents = floatTensor({0});
  if (!contents || contents->elementType() != ElementType::Float)
    return llvm::Error::success();
  auto narrow = narrowed(contents);
  if (!narrow)
    return narrow.takeError();
  for (const char* name : {"value", "value_float", "value_floats"})
    node.removeAttribute(name);
  node.setAttribute("value", Attribute::ofTensor(std::move(*narrow)));
  return llvm::Error::success();
}

llvm::Error narrowGraph(Graph& graph) {
  llvm::SmallVector<Value*, 32> initializers;
  for (const std::unique_ptr<Value>& initializer : graph.initializers())
    if (isFloat(initializer.get()) && initializer->constantRef())
      initializers.push_back(initializer.get());
  for (Value* initializer : initializers) {
    auto narrow = narrowed(initializer->constantRef());
    if (!narrow)
      return narrow.takeError();
    initializer->replaceAllUsesWith(graph.addConstant(initializer->name(), std::move(*narrow)));
    graph.removeInitializer(*initializer);
  }
  for (Node& node : llvm::make_early_inc_range(graph.nodes())) {
    for (Graph* nested : node.subgraphs())
      if (llvm::Error error = narrowGraph(*nested))
        return error;
    if (!staysWide(node)) {
      if (llvm::Error error = narrowAttributes(node))
        return error;
      continue;
    }
    if (!isFloat(&node.result()))
      continue;
    for (const Use& use : node.operands())
      if (isFloat(use.value()) || use.value()->type().elementType() == ElementType::Float16)
        node.setOperand(use.operandIndex(), &cast(graph, *use.value(), ElementType::Float, &node));
    llvm::SmallVector<Use*, 4> uses;
    for (Use& use : node.result().uses())
      uses.push_back(&use);
    auto next = std::next(node.getIterator());
    Value& half = cast(graph, node.result(), ElementType::Float16,
                       next == graph.nodes().end() ? nullptr : &*next);
    for (Use* use : uses)
      use->user().setOperand(use->operandIndex(), &half);
  }
  return llvm::Error::success();
}

/// Whether all numbers of the model are float32: what converters take.
bool isWide(Graph& main) {
  bool any = false;
  bool others = false;
  forEachGraph(main, [&](Graph& graph) {
    auto see = [&](const Value& value) {
      const ElementType element = value.type().elementType();
      any |= element == ElementType::Float;
      others |= isFloatingPoint(element) && element != ElementType::Float;
    };
    for (const std::unique_ptr<Value>& input : graph.inputs())
      see(*input);
    for (const std::unique_ptr<Value>& initializer : graph.initializers())
      see(*initializer);
    for (const Node& node : graph.nodes())
      for (const Value& result : node.results())
        see(result);
  });
  return any && !others;
}

} // namespace

llvm::Expected<bool> narrowNumbers(TransformedModel& transformed) {
  Graph& graph = transformed.graph();
  if (llvm::Error error = inferShapes(graph))
    return error;
  if (!isWide(graph) || !transformed.model->functions.empty() || graph.nodes().empty())
    return false;
  llvm::SmallVector<bool, 16> wideOutputs;
  for (const Value* output : graph.outputs())
    wideOutputs.push_back(isFloat(output));
  if (llvm::Error error = narrowGraph(graph))
    return error;
  Node* first = &graph.nodes().front();
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    if (!isFloat(input.get()))
      continue;
    llvm::SmallVector<Use*, 8> uses;
    for (Use& use : input->uses())
      uses.push_back(&use);
    Value& half = cast(graph, *input, ElementType::Float16, first);
    for (Use* use : uses)
      use->user().setOperand(use->operandIndex(), &half);
  }
  for (unsigned slot = 0; slot < graph.outputs().size(); ++slot) {
    Value* output = graph.outputs()[slot];
    if (!wideOutputs[slot] || !output->producer())
      continue;
    const std::string name = output->name().str();
    Value& wide = cast(graph, *output, ElementType::Float, nullptr);
    graph.setOutput(slot, wide);
    graph.rename(*output, graph.freshName(name + "_half"));
    graph.rename(wide, name);
  }
  forEachGraph(graph, [](Graph& inner) {
    for (Node& node : inner.nodes())
      for (Value& result : node.results())
        if (!result.isGraphOutput())
          result.setType({});
  });
  return true;
}

} // namespace kvopt
