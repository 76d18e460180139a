// Widening of constants, types and casts; expansion of weights that are quantized in blocks.
#include "passes/unrounding/widened_model.h"

#include "ir/required_values.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"
#include "support/half.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace kvopt::unrounding {
using namespace ir;

namespace {

bool isNarrow(ElementType element) {
  return element == ElementType::Float16 || element == ElementType::BFloat16;
}

bool isNarrow(int64_t element) {
  return element == static_cast<int64_t>(ElementType::Float16) ||
         element == static_cast<int64_t>(ElementType::BFloat16);
}

llvm::Expected<std::vector<float>> asFloats(const TensorData& tensor) {
  const ElementType element = tensor.elementType();
  if (element != ElementType::Float && !isNarrow(element))
    return unsupported("{} numbers among quantised weights", onnxName(element));
  auto bytes = tensor.bytes();
  if (!bytes)
    return bytes.takeError();
  std::vector<float> values(static_cast<size_t>(tensor.elementCount()));
  if (element == ElementType::Float) {
    std::memcpy(values.data(), bytes->data(), bytes->size());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes->data() + 2 * i, 2);
    values[i] = element == ElementType::Float16 ? f16ToFloat(bits) : bf16ToFloat(bits);
  }
  return values;
}

llvm::Expected<TensorRef> floats(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<float> values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return makeTensor(ElementType::Float, shape, std::move(bytes));
}

llvm::Expected<TensorRef> widened(const TensorRef& tensor) {
  auto values = asFloats(*tensor);
  if (!values)
    return values.takeError();
  return floats(tensor->shape(), *values);
}

/// Weights of a MatMulNBits, read according to its specification.
class WidenedBlocks {
public:
  static llvm::Expected<WidenedBlocks> of(const Node& node) {
    WidenedBlocks weights;
    weights.rows = node.intAttr("N", 0);
    weights.columns = node.intAttr("K", 0);
    weights.blockSize = node.intAttr("block_size", 0);
    weights.bits = node.intAttr("bits", 4);
    constexpr int64_t most = int64_t{1} << 31;
    if (weights.rows <= 0 || weights.columns <= 0 || weights.rows > most ||
        weights.columns > most || weights.blockSize < 16 || weights.blockSize > most ||
        (weights.bits != 2 && weights.bits != 4 && weights.bits != 8) || node.operand(4))
      return unsupported("quantised weights of this form cannot be expanded");
    weights.blocks = (weights.columns + weights.blockSize - 1) / weights.blockSize;
    if (llvm::Error error = weights.read(node))
      return error;
    return weights;
  }

  /// The right factor, [K,N].
  llvm::Expected<TensorRef> expanded() const {
    auto count = checkedElementCount({columns, rows});
    if (!count)
      return count.takeError();
    std::vector<float> values(static_cast<size_t>(*count));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t block = column / blockSize;
        const int64_t first = (row * blocks + block) * blockSize;
        const float number = codeAt(packed, first + column % blockSize);
        values[static_cast<size_t>(column * rows + row)] =
            (number - zeroPoint(row, block)) * scales[static_cast<size_t>(row * blocks + block)];
      }
    return floats({columns, rows}, values);
  }

private:
  llvm::Error read(const Node& node) {
    auto bytesOf = [&](unsigned operand,
                       int64_t expected) -> llvm::Expected<std::span<const std::byte>> {
      const TensorData* data = node.operand(operand) ? node.operand(operand)->constant() : nullptr;
      if (!data)
        return unsupported("a quantized weight that is not a constant");
      if (data->byteSize().value_or(-1) != expected)
        return invalid("a quantised weight of another size than N, K and block_size ask for");
      return data->bytes();
    };
    auto packedBytes = checkedElementCount({rows, blocks, blockSize * bits / 8});
    if (!packedBytes)
      return packedBytes.takeError();
    auto codes = bytesOf(1, *packedBytes);
    if (!codes)
      return codes.takeError();
    packed = *codes;
    const TensorData* given = node.operand(2) ? node.operand(2)->constant() : nullptr;
    if (!given || given->elementCount() != rows * blocks)
      return unsupported("scales that are not a constant [N,blocks]");
    auto values = asFloats(*given);
    if (!values)
      return values.takeError();
    scales = std::move(*values);
    if (!node.operand(3))
      return llvm::Error::success();
    const TensorData* zeros = node.operand(3)->constant();
    if (zeros && zeros->elementType() != ElementType::UInt8) {
      auto numbers = asFloats(*zeros);
      if (!numbers)
        return numbers.takeError();
      if (static_cast<int64_t>(numbers->size()) != rows * blocks)
        return invalid("zero points of another size than the scales");
      zeroFloats = std::move(*numbers);
      return llvm::Error::success();
    }
    auto packedZeros = bytesOf(3, rows * zeroRowBytes());
    if (!packedZeros)
      return packedZeros.takeError();
    zeroCodes = *packedZeros;
    return llvm::Error::success();
  }

  int64_t zeroRowBytes() const { return (blocks * bits + 7) / 8; }

  /// Codes are packed into bytes from the lowest bits.
  float codeAt(std::span<const std::byte> bytes, int64_t index) const {
    const int64_t bit = index * bits;
    const auto byte = std::to_integer<unsigned>(bytes[static_cast<size_t>(bit / 8)]);
    return static_cast<float>((byte >> (bit % 8)) & ((1u << bits) - 1));
  }

  float zeroPoint(int64_t row, int64_t block) const {
    if (!zeroFloats.empty())
      return zeroFloats[static_cast<size_t>(row * blocks + block)];
    if (!zeroCodes.empty())
      return codeAt(zeroCodes.subspan(static_cast<size_t>(row * zeroRowBytes())), block);
    return static_cast<float>(1 << (bits - 1));
  }

  int64_t rows = 0;
  int64_t columns = 0;
  int64_t blockSize = 0;
  int64_t blocks = 0;
  int64_t bits = 0;
  std::span<const std::byte> packed;
  std::span<const std::byte> zeroCodes;
  std::vector<float> scales;
  std::vector<float> zeroFloats;
};

llvm::Error expandWeights(Node& node) {
  auto weights = WidenedBlocks::of(node);
  if (!weights)
    return weights.takeError();
  auto matrix = weights->expanded();
  if (!matrix)
    return matrix.takeError();
  auto rows = requiredOperand(node, 0);
  if (!rows)
    return rows.takeError();
  Graph& graph = node.graph();
  Value& constant = graph.addConstant("expanded", *matrix);
  Node* product = &graph.createFresh("MatMul", {*rows, &constant}, 1, &node, "product");
  if (Value* bias = node.operand(5))
    product = &graph.createFresh("Add", {&product->result(), bias}, 1, &node, "product");
  product->result().setType(node.result().type());
  node.result().replaceAllUsesWith(product->result());
  graph.erase(node);
  return llvm::Error::success();
}

void widenType(Value& value) {
  if (!isNarrow(value.type().elementType()))
    return;
  TensorType type = value.type();
  type.setElementType(ElementType::Float);
  value.setType(std::move(type));
}

llvm::Error widenAttributes(Node& node) {
  for (NamedAttribute& attribute : node.attributes()) {
    const std::string name = attribute.name;
    if (attribute.value.isReference())
      continue;
    if (attribute.value.kind() == AttributeKind::Tensor &&
        isNarrow(attribute.value.tensorValue()->elementType())) {
      auto tensor = widened(attribute.value.tensorValue());
      if (!tensor)
        return tensor.takeError();
      node.setAttribute(name, Attribute::ofTensor(std::move(*tensor)));
    } else if (attribute.value.kind() == AttributeKind::Int && (name == "to" || name == "dtype") &&
               isNarrow(attribute.value.intValue())) {
      node.setAttribute(name, Attribute::ofInt(static_cast<int64_t>(ElementType::Float)));
    }
  }
  return llvm::Error::success();
}

llvm::Error widenGraph(Graph& graph) {
  std::vector<Value*> constants;
  for (const std::unique_ptr<Value>& initializer : graph.initializers())
    if (initializer->constant() && isNarrow(initializer->constant()->elementType()))
      constants.push_back(initializer.get());
  for (Value* constant : constants) {
    auto tensor = widened(constant->initializer());
    if (!tensor)
      return tensor.takeError();
    Value& wide = graph.addConstant(constant->name(), std::move(*tensor));
    constant->replaceAllUsesWith(wide);
    graph.removeInitializer(*constant);
  }
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    widenType(*input);
    if (input->initializer() && isNarrow(input->initializer()->elementType())) {
      auto tensor = widened(input->initializer());
      if (!tensor)
        return tensor.takeError();
      graph.setInputDefault(*input, std::move(*tensor));
    }
  }
  for (Node& node : llvm::make_early_inc_range(graph.nodes())) {
    for (Value& result : node.results())
      widenType(result);
    if (llvm::Error error = widenAttributes(node))
      return withNode(std::move(error), node.name(), node.op().str());
    if (node.is("com.microsoft::MatMulNBits")) {
      const std::string name = node.name().str();
      if (llvm::Error error = expandWeights(node))
        return withNode(std::move(error), name, "com.microsoft::MatMulNBits");
    }
  }
  return llvm::Error::success();
}

void see(const Graph& graph, NarrowNumbers& narrow) {
  auto seeNumber = [&](int64_t element) {
    narrow.float16 |= element == static_cast<int64_t>(ElementType::Float16);
    narrow.bfloat16 |= element == static_cast<int64_t>(ElementType::BFloat16);
  };
  auto seeType = [&](ElementType element) { seeNumber(static_cast<int64_t>(element)); };
  for (const std::unique_ptr<Value>& input : graph.inputs())
    seeType(input->type().elementType());
  for (const std::unique_ptr<Value>& initializer : graph.initializers())
    seeType(initializer->type().elementType());
  for (const Value* output : graph.outputs())
    seeType(output->type().elementType());
  for (const Node& node : graph.nodes()) {
    narrow.quantizedWeights |= node.is("com.microsoft::MatMulNBits");
    if (node.is("Cast"))
      seeNumber(node.intAttr("to", 0));
    for (const NamedAttribute& attribute : node.attributes()) {
      if (attribute.value.kind() == AttributeKind::Tensor && !attribute.value.isReference())
        seeType(attribute.value.tensorValue()->elementType());
      for (const std::unique_ptr<Graph>& nested : attribute.value.graphs())
        see(*nested, narrow);
    }
  }
}

} // namespace

NarrowNumbers narrowNumbersOf(const Model& model) {
  NarrowNumbers narrow;
  see(model.graph(), narrow);
  for (const std::unique_ptr<Function>& function : model.functions)
    see(function->body, narrow);
  return narrow;
}

llvm::Error widenModel(Model& model, Manifest& manifest) {
  llvm::Error failure = llvm::Error::success();
  auto widenAll = [&](Graph& outermost) {
    forEachGraph(outermost, [&](Graph& graph) {
      if (!failure)
        failure = widenGraph(graph);
    });
  };
  widenAll(model.graph());
  for (const std::unique_ptr<Function>& function : model.functions)
    widenAll(function->body);
  if (failure)
    return failure;
  for (ManifestCache& cache : manifest.caches)
    if (isNarrow(cache.dtype))
      cache.dtype = ElementType::Float;
  return inferShapes(model.graph());
}

} // namespace kvopt::unrounding
