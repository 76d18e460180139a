// Nodes, weights, linear layers and norms.
#include "driver/synthetic/graph_builder.h"

#include "driver/synthetic/random_tensor.h"
#include "support/format.h"
#include "support/half.h"

#include <cmath>
#include <cstring>

namespace kvopt::driver {
using namespace ir;

namespace {

Attribute attributeOf(const AttributeSpec& spec) {
  if (const auto* number = std::get_if<int64_t>(&spec.value))
    return Attribute::ofInt(*number);
  if (const auto* number = std::get_if<float>(&spec.value))
    return Attribute::ofFloat(*number);
  if (const auto* text = std::get_if<std::string>(&spec.value))
    return Attribute::ofString(*text);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&spec.value))
    return Attribute::ofInts(*list);
  return Attribute::ofTensor(std::get<TensorRef>(spec.value));
}

/// Standard deviation of the four-bit numbers -8 … 7, distributed evenly.
const double fourBitDeviation = std::sqrt((16.0 * 16.0 - 1.0) / 12.0);
constexpr int64_t fourBitBlock = 32;

} // namespace

Node& GraphBuilder::node(const char* type, llvm::ArrayRef<Value*> operands,
                         llvm::ArrayRef<AttributeSpec> attributes, unsigned results) {
  const OpName name(type);
  const unsigned number = ++count;
  std::vector<std::string> names;
  for (unsigned i = 0; results >> i != 0; ++i) {
    std::string& result = names.emplace_back();
    if ((results >> i & 1) == 0)
      continue;
    result = isScript ? formatted("/model/{}{}_{}_output_{}", scope, name.type(), number, i)
                      : formatted("{}_{}{}", name.type().lower(), number,
                                  i == 0 ? "" : formatted("_{}", i));
  }
  llvm::SmallVector<llvm::StringRef, 3> resultNames(names.begin(), names.end());
  Node& made = current->create(name, operands, resultNames);
  made.setName(isScript ? formatted("/model/{}{}_{}", scope, name.type(), number)
                        : formatted("node_{}_{}", name.type(), number));
  for (const AttributeSpec& attribute : attributes)
    made.setAttribute(attribute.name, attributeOf(attribute));
  return made;
}

Value& GraphBuilder::transpose(Value& x, std::vector<int64_t> permutation) {
  return op("Transpose", {&x}, {{"perm", std::move(permutation)}});
}

Value& GraphBuilder::cast(Value& x, ElementType type) {
  return op("Cast", {&x}, {{"to", static_cast<int64_t>(type)}});
}

Value& GraphBuilder::toFloat(Value& x) {
  return isScript || spec.real != ElementType::Float ? cast(x, ElementType::Float) : x;
}

Value& GraphBuilder::toReal(Value& x) {
  return isScript || spec.real != ElementType::Float ? cast(x, spec.real) : x;
}

Value& GraphBuilder::constant(TensorRef data) {
  if (!isScript)
    return current->addInitializer(formatted("val_{}", ++count), std::move(data));
  return op("Constant", {}, {{"value", std::move(data)}});
}

Value& GraphBuilder::ints(std::initializer_list<int64_t> values) {
  return constant(int64Tensor(std::vector<int64_t>(values)));
}

Value& GraphBuilder::weight(const std::string& name, llvm::ArrayRef<int64_t> shape,
                            double deviation, double centre) {
  if (Value* known = model.graph().findValue(name))
    return *known;
  return model.graph().addInitializer(
      name, randomNumbers(spec.real, shape, keyOf(spec.seed, name), centre, deviation));
}

Value& GraphBuilder::table(const std::string& name, llvm::ArrayRef<int64_t> shape,
                           llvm::ArrayRef<float> values) {
  const size_t width = *byteWidth(spec.real);
  std::vector<std::byte> bytes(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) {
    if (spec.real == ElementType::Float) {
      std::memcpy(&bytes[i * width], &values[i], width);
    } else {
      const uint16_t rounded =
          spec.real == ElementType::Float16 ? floatToF16(values[i]) : floatToBf16(values[i]);
      std::memcpy(&bytes[i * width], &rounded, width);
    }
  }
  return model.graph().addInitializer(
      name, llvm::cantFail(makeTensor(spec.real, shape, std::move(bytes))));
}

Value& GraphBuilder::linear(Value& x, const std::string& name, int64_t in, int64_t out, double gain,
                            bool hasBias) {
  const double deviation = gain / std::sqrt(static_cast<double>(in));
  const auto floatWeight = [&]() -> Value& {
    if (!spec.transposedWeights)
      return weight(name + ".weight", {in, out}, deviation);
    return transpose(weight(name + ".weight", {out, in}, deviation), {1, 0});
  };
  Value& product = spec.fourBit ? fourBitProduct(x, name, in, out, deviation)
                                : op("MatMul", {&x, &floatWeight()});
  return hasBias ? op("Add", {&weight(name + ".bias", {out}, 0.1), &product}) : product;
}

Value& GraphBuilder::fourBitProduct(Value& x, const std::string& name, int64_t in, int64_t out,
                                    double deviation) {
  const int64_t blocks = (in + fourBitBlock - 1) / fourBitBlock;
  const double scale = deviation / fourBitDeviation;
  Graph& main = model.graph();
  auto initializer = [&](const std::string& full, auto make) -> Value& {
    Value* known = main.findValue(full);
    return known ? *known : main.addInitializer(full, make(keyOf(spec.seed, full)));
  };
  Value& codes = initializer(name + ".weight_Q4", [&](uint64_t key) {
    return randomCodes({out, blocks, fourBitBlock / 2}, key);
  });
  Value& scales = initializer(name + ".weight_scales", [&](uint64_t key) {
    return randomNumbers(ElementType::Float, {out * blocks}, key, scale, scale / 8);
  });
  return op("com.microsoft::MatMulNBits", {&x, &codes, &scales},
            {{"K", in}, {"N", out}, {"bits", 4}, {"block_size", fourBitBlock}});
}

Value& GraphBuilder::lastAxisMean(Value& x) {
  if (spec.opset < 18)
    return op("ReduceMean", {&x}, {{"axes", std::vector<int64_t>{-1}}});
  return op("ReduceMean", {&x, &ints({-1})});
}

Value& GraphBuilder::spelledRmsNorm(Value& x, Value& gamma) {
  Value& wide = toFloat(x);
  Value& square = op("Pow", {&wide, &single(2.0)});
  Value& root =
      op("Sqrt", {&op("Add", {&lastAxisMean(square), &single(static_cast<double>(normEpsilon))})});
  Value& inverse = isScript ? op("Div", {&single(1.0), &root}) : op("Reciprocal", {&root});
  return op("Mul", {&gamma, &toReal(op("Mul", {&wide, &inverse}))});
}

Value& GraphBuilder::rmsNorm(Value& x, const std::string& name, int64_t width) {
  Value& gamma = weight(name + ".weight", {width}, 0.1, 1.0);
  if (spec.spelling == DecoderSpelling::Attention)
    return op("RMSNormalization", {&x, &gamma}, {{"axis", -1}, {"epsilon", normEpsilon}});
  if (spec.spelling == DecoderSpelling::GroupQueryAttention)
    return op("SimplifiedLayerNormalization", {&x, &gamma},
              {{"axis", -1}, {"epsilon", normEpsilon}, {"stash_type", 1}});
  return spelledRmsNorm(x, gamma);
}

Value& GraphBuilder::spelledLayerNorm(Value& x, Value& gamma, Value& beta) {
  Value& centred = op("Sub", {&x, &lastAxisMean(x)});
  Value& variance = lastAxisMean(op("Pow", {&centred, &single(2.0)}));
  Value& root = op("Sqrt", {&op("Add", {&variance, &real(static_cast<double>(normEpsilon))})});
  return op("Add", {&op("Mul", {&op("Div", {&centred, &root}), &gamma}), &beta});
}

Value& GraphBuilder::layerNorm(Value& x, const std::string& name, int64_t width) {
  Value& gamma = weight(name + ".weight", {width}, 0.1, 1.0);
  Value& beta = weight(name + ".bias", {width}, 0.1);
  if (spec.opset < 17)
    return spelledLayerNorm(x, gamma, beta);
  return op("LayerNormalization", {&x, &gamma, &beta}, {{"axis", -1}, {"epsilon", normEpsilon}});
}

Value& GraphBuilder::gelu(Value& x) {
  Value& cubic = op("Mul", {&op("Pow", {&x, &single(3.0)}), &real(0.044715)});
  Value& inner = op("Mul", {&op("Add", {&x, &cubic}), &real(0.7978845608028654)});
  return op("Mul", {&op("Mul", {&x, &real(0.5)}), &op("Add", {&op("Tanh", {&inner}), &real(1.0)})});
}

Value& GraphBuilder::extent(Value& tensor, int64_t axis) {
  if (isScript)
    return op("Gather", {&op("Shape", {&tensor}), &integer(axis)}, {{"axis", 0}});
  if (spec.opset < 15)
    return op("Gather", {&op("Shape", {&tensor}), &ints({axis})}, {{"axis", 0}});
  return op("Shape", {&tensor}, {{"start", axis}, {"end", axis + 1}});
}

} // namespace kvopt::driver
