// Removal of rounding from a copy of a model.
#include "passes/unrounding/unrounded_codes.h"

#include "ir/movement.h"
#include "ir/op_name.h"
#include "ir/ops/kvopt/cache_operator.h"
#include "ir/required_values.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

#include <cstring>

namespace kvopt::unrounding {
using namespace ir;

namespace {

bool isInt8(const Value* value) {
  return value && value->type().elementType() == ElementType::Int8;
}

/// Whether the node returns rows unchanged, or attends to them as numbers.
bool keepsCodes(const Node& node) {
  if (const auto kind = movementKind(node))
    return *kind != MovementKind::Convert;
  return node.is("Concat") || node.is("ScatterND") || node.is("ScatterElements") ||
         node.is("TensorScatter") || node.is("Where") ||
         node.op() == OpName(kvoptDomain, "AppendRows") ||
         CacheOperator::of(node) == CacheOperator{} || node.op() == OpName(kvoptDomain, "Sdpa");
}

llvm::Expected<TensorRef> floatTensorOf(llvm::ArrayRef<int64_t> shape,
                                        llvm::ArrayRef<float> values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return makeTensor(ElementType::Float, shape, std::move(bytes));
}

class Unrounding {
public:
  explicit Unrounding(Graph& changed) : graph(changed) {}

  /// Follows codes forward and backward through all nodes that pass them on.
  llvm::Error follow(Value& first) {
    llvm::SmallVector<Value*, 32> pending{&first};
    while (!pending.empty()) {
      Value* value = pending.pop_back_val();
      if (!codes.insert(value))
        continue;
      if (Node* producer = value->producer())
        if (llvm::Error error = see(*producer, pending))
          return error;
      if (!value->producer() && !value->isGraphInput())
        return unsupported("codes of '{}' that are constants", value->name());
      for (Use& use : value->uses())
        if (llvm::Error error = see(use.user(), pending))
          return error;
    }
    return llvm::Error::success();
  }

  llvm::Error unround() {
    for (Node* node : quantizers)
      if (llvm::Error error = replace(*node, true))
        return error;
    for (Node* node : dequantizers)
      if (llvm::Error error = replace(*node, false))
        return error;
    for (Value* value : codes) {
      if (value->producer() && llvm::is_contained(quantizers, value->producer()))
        continue; // erased
      TensorType type = value->type();
      type.setElementType(ElementType::Float);
      value->setType(std::move(type));
    }
    for (Node* node : quantizers)
      graph.erase(*node);
    for (Node* node : dequantizers)
      graph.erase(*node);
    return llvm::Error::success();
  }

private:
  llvm::Error see(Node& node, llvm::SmallVectorImpl<Value*>& pending) {
    const bool quantizes = node.is("QuantizeLinear"), dequantizes = node.is("DequantizeLinear");
    if (quantizes || dequantizes) {
      if (&node.graph() != &graph)
        return unsupported("codes in a subgraph");
      (quantizes ? quantizers : dequantizers).insert(&node);
      return llvm::Error::success();
    }
    if (node.is("Cast") || node.is("Shape"))
      return llvm::Error::success();
    if (!keepsCodes(node))
      return unsupported("codes are read by {}", node.describe());
    for (const Use& use : node.operands())
      if (isInt8(use.value()))
        pending.push_back(use.value());
    for (Value& result : node.results())
      if (!result.isAbsent() && isInt8(&result))
        pending.push_back(&result);
    return llvm::Error::success();
  }

  /// Scales of the node as a constant that broadcasts to its rows.
  llvm::Expected<Value*> scalesOf(const Node& node) {
    auto given = requiredOperand(node, 1);
    auto quantized = requiredOperand(node, 0);
    if (!given || !quantized)
      return llvm::joinErrors(given.takeError(), quantized.takeError());
    const TensorData* data = (*given)->constant();
    const TensorType& rows = (*quantized)->type();
    const auto numbers = data && data->elementType() == ElementType::Float
                             ? floatValues(*data, int64_t{1} << 20)
                             : std::nullopt;
    if (!numbers || !rows.hasRank() || node.intAttr("block_size", 0) != 0)
      return unsupported("scales of codes that are not float32 constants");
    if (const Value* zero = node.operand(2)) {
      const auto points =
          zero->constant() ? integerValues(*zero->constant(), int64_t{1} << 20) : std::nullopt;
      if (!points || llvm::any_of(*points, [](int64_t point) { return point != 0; }))
        return unsupported("codes that are not around zero");
    }
    std::vector<float> values(numbers->begin(), numbers->end());
    llvm::SmallVector<int64_t, 4> shape;
    if (values.size() != 1) {
      int64_t axis = node.intAttr("axis", 1);
      axis = axis < 0 ? axis + rows.rank() : axis;
      shape.assign(rows.rank(), 1);
      if (axis < 0 || axis >= static_cast<int64_t>(rows.rank()))
        return unsupported("scales on an axis that rows do not have");
      shape[static_cast<size_t>(axis)] = static_cast<int64_t>(values.size());
    }
    auto tensor = floatTensorOf(shape, values);
    if (!tensor)
      return tensor.takeError();
    return &graph.addConstant("scales", std::move(*tensor));
  }

  llvm::Error replace(Node& node, bool quantizes) {
    auto scales = scalesOf(node);
    if (!scales)
      return scales.takeError();
    Node* made =
        &graph.createFresh(quantizes ? "Div" : "Mul", {node.operand(0), *scales}, 1, &node, "row");
    TensorType type = node.result().type();
    type.setElementType(ElementType::Float);
    made->result().setType(type);
    if (quantizes) {
      Value& least = graph.addConstant("least_code", floatScalar(ElementType::Float, -128));
      Value& most = graph.addConstant("largest_code", floatScalar(ElementType::Float, 127));
      made = &graph.createFresh("Clip", {&made->result(), &least, &most}, 1, &node, "row");
      made->result().setType(type);
    }
    node.result().replaceAllUsesWith(made->result());
    return llvm::Error::success();
  }

  Graph& graph;
  llvm::SetVector<Value*> codes;
  llvm::SetVector<Node*> quantizers, dequantizers;
};

} // namespace

bool holdsCodes(const ManifestCache& cache) {
  return cache.dtype == ElementType::Int8 && cache.codeColumns == 0 &&
         (cache.role == CacheRole::Key || cache.role == CacheRole::Value);
}

llvm::Error keepUnroundedCodes(Model& model, Manifest& manifest) {
  Graph& graph = model.graph();
  if (graph.opsetVersion() < 11)
    return unsupported("opset {} has no bounds that are operands", graph.opsetVersion());
  Unrounding unrounding(graph);
  for (ManifestCache& cache : manifest.caches) {
    if (!holdsCodes(cache))
      continue;
    Value* past = graph.findValue(cache.past);
    if (!past || !past->isGraphInput())
      return invalid("the model has no input '{}'", cache.past);
    if (llvm::Error error = unrounding.follow(*past))
      return error;
    cache.dtype = ElementType::Float;
  }
  if (llvm::Error error = unrounding.unround())
    return error;
  return inferShapes(graph);
}

} // namespace kvopt::unrounding
