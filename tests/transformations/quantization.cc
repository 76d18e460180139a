// Linear layers with weights, and activations, of eight or four bits.
#include "ir/shapes/shape_inference.h"
#include "tests/transformations/transformation.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvopt {
using namespace ir;

namespace {

constexpr int64_t blockSize = 32;

/// A float32 matrix [rows,columns] that activations are multiplied with.
struct Weights {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> numbers;

  float at(int64_t row, int64_t column) const {
    return numbers[static_cast<size_t>(row * columns + column)];
  }
  float largest() const {
    float most = 0;
    for (float number : numbers)
      most = std::max(most, std::abs(number));
    return most;
  }
};

/// A product of float32 activations with a constant matrix.
bool isLinear(const Node& node) {
  const Value* weights = node.is("MatMul") ? node.operand(1) : nullptr;
  const TensorData* data = weights ? weights->constant() : nullptr;
  return data && data->elementType() == ElementType::Float && data->shape().size() == 2 &&
         node.operand(0)->type().elementType() == ElementType::Float;
}

llvm::Expected<Weights> weightsOf(const Node& node) {
  const TensorData& data = *node.operand(1)->constant();
  auto bytes = data.bytes();
  if (!bytes)
    return bytes.takeError();
  Weights weights{data.shape()[0], data.shape()[1], {}};
  weights.numbers.resize(bytes->size() / sizeof(float));
  std::memcpy(weights.numbers.data(), bytes->data(), bytes->size());
  return weights;
}

TensorRef bytesTensor(ElementType element, llvm::ArrayRef<int64_t> shape,
                      llvm::ArrayRef<uint8_t> bytes) {
  auto packed = std::as_bytes(std::span(bytes.data(), bytes.size()));
  return llvm::cantFail(makeTensor(element, shape, {packed.begin(), packed.end()}));
}

TensorRef scalarByte(ElementType element, uint8_t value) {
  return bytesTensor(element, {}, {value});
}

/// The codes of symmetric int8 weights, for a scale.
TensorRef codesOf(const Weights& weights, float scale) {
  std::vector<uint8_t> codes;
  for (float number : weights.numbers)
    codes.push_back(static_cast<uint8_t>(
        static_cast<int8_t>(std::clamp(std::round(number / scale), -127.0f, 127.0f))));
  return bytesTensor(ElementType::Int8, {weights.rows, weights.columns}, codes);
}

float scaleOf(const Weights& weights) { return std::max(weights.largest(), 1e-6f) / 127; }

Value& withBothSides(Graph& graph, Value& value, float scale, Node* before) {
  Value& step = graph.addConstant("scale", floatScalar(ElementType::Float, scale));
  Value& zero = graph.addConstant("zero_point", scalarByte(ElementType::UInt8, 128));
  Node& codes = graph.createFresh("QuantizeLinear", {&value, &step, &zero}, 1, before);
  return graph.createFresh("DequantizeLinear", {&codes.result(), &step, &zero}, 1, before).result();
}

llvm::Error quantizeDynamically(Node& node) {
  auto weights = weightsOf(node);
  if (!weights)
    return weights.takeError();
  Graph& graph = node.graph();
  const float scale = scaleOf(*weights);
  Node& activation = graph.createFresh("DynamicQuantizeLinear", {node.operand(0)}, 3, &node);
  Value& codes = graph.addConstant("codes", codesOf(*weights, scale));
  Value& zero = graph.addConstant("zero_point", scalarByte(ElementType::Int8, 0));
  Node& product = graph.createFresh(
      "MatMulInteger", {&activation.result(0), &codes, &activation.result(2), &zero}, 1, &node);
  Node& cast = graph.createFresh("Cast", {&product.result()}, 1, &node);
  cast.setAttribute("to", Attribute::ofInt(static_cast<int64_t>(ElementType::Float)));
  Value& step = graph.addConstant("scale", floatScalar(ElementType::Float, scale));
  Node& both = graph.createFresh("Mul", {&activation.result(1), &step}, 1, &node);
  Node& scaled = graph.createFresh("Mul", {&cast.result(), &both.result()}, 1, &node);
  scaled.result().setType(node.result().type());
  node.result().replaceAllUsesWith(scaled.result());
  graph.erase(node);
  return llvm::Error::success();
}

llvm::Error quantizeStatically(Node& node) {
  auto weights = weightsOf(node);
  if (!weights)
    return weights.takeError();
  Graph& graph = node.graph();
  const float scale = scaleOf(*weights);
  // Activations of random models have a variance of about one.
  constexpr float activationScale = 16.0f / 255;
  Value& codes = graph.addConstant("codes", codesOf(*weights, scale));
  Value& step = graph.addConstant("scale", floatScalar(ElementType::Float, scale));
  Value& zero = graph.addConstant("zero_point", scalarByte(ElementType::Int8, 0));
  Node& matrix = graph.createFresh("DequantizeLinear", {&codes, &step, &zero}, 1, &node);
  node.setOperand(0, &withBothSides(graph, *node.operand(0), activationScale, &node));
  node.setOperand(1, &matrix.result());
  llvm::SmallVector<Use*, 4> uses;
  for (Use& use : node.result().uses())
    uses.push_back(&use);
  auto next = std::next(node.getIterator());
  Value& rounded = withBothSides(graph, node.result(), 2 * activationScale,
                                 next == graph.nodes().end() ? nullptr : &*next);
  for (Use* use : uses)
    use->user().setOperand(use->operandIndex(), &rounded);
  return llvm::Error::success();
}

/// Four bits with a scale for 32 weights of a column, as MatMulNBits takes them.
llvm::Error quantizeInBlocks(Node& node) {
  auto weights = weightsOf(node);
  if (!weights)
    return weights.takeError();
  const int64_t blocks = weights->rows / blockSize;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  for (int64_t column = 0; column < weights->columns; ++column)
    for (int64_t block = 0; block < blocks; ++block) {
      float most = 1e-6f;
      for (int64_t i = 0; i < blockSize; ++i)
        most = std::max(most, std::abs(weights->at(block * blockSize + i, column)));
      const float scale = most / 7;
      scales.push_back(scale);
      auto code = [&](int64_t i) {
        const float number = weights->at(block * blockSize + i, column);
        return static_cast<unsigned>(std::clamp(std::round(number / scale) + 8, 0.0f, 15.0f));
      };
      for (int64_t i = 0; i < blockSize; i += 2)
        codes.push_back(static_cast<uint8_t>(code(i) | code(i + 1) << 4));
    }
  Graph& graph = node.graph();
  Value& packed = graph.addConstant(
      "codes", bytesTensor(ElementType::UInt8, {weights->columns, blocks, blockSize / 2}, codes));
  Value& steps = graph.addConstant("scales", floatTensor(scales));
  Node& product =
      graph.createFresh("com.microsoft::MatMulNBits", {node.operand(0), &packed, &steps}, 1, &node);
  product.setAttribute("K", Attribute::ofInt(weights->rows));
  product.setAttribute("N", Attribute::ofInt(weights->columns));
  product.setAttribute("bits", Attribute::ofInt(4));
  product.setAttribute("block_size", Attribute::ofInt(blockSize));
  product.result().setType(node.result().type());
  node.result().replaceAllUsesWith(product.result());
  graph.erase(node);
  return llvm::Error::success();
}

llvm::Expected<bool> quantize(TransformedModel& transformed, llvm::Error (*one)(Node&),
                              llvm::function_ref<bool(const Node&)> takes) {
  Graph& graph = transformed.graph();
  if (llvm::Error error = inferShapes(graph))
    return error;
  llvm::SmallVector<Node*, 32> chosen;
  for (Node& node : graph.nodes())
    if (isLinear(node) && takes(node))
      chosen.push_back(&node);
  for (Node* node : chosen)
    if (llvm::Error error = one(*node))
      return error;
  graph.eraseDeadNodes();
  return !chosen.empty();
}

} // namespace

llvm::Expected<bool> quantizeActivations(TransformedModel& transformed) {
  return quantize(transformed, quantizeDynamically, [](const Node&) { return true; });
}

llvm::Expected<bool> quantizeAroundLinear(TransformedModel& transformed) {
  return quantize(transformed, quantizeStatically, [](const Node&) { return true; });
}

llvm::Expected<bool> quantizeWeights(TransformedModel& transformed) {
  transformed.model->opsets.try_emplace("com.microsoft", 1);
  return quantize(transformed, quantizeInBlocks, [](const Node& node) {
    return node.operand(1)->constant()->shape()[0] % blockSize == 0;
  });
}

} // namespace kvopt
