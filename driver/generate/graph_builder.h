// GraphBuilder: operators, constants and weights in the habits of one exporter.
#pragma once

#include "driver/generate/decoder_spec.h"
#include "ir/model.h"

#include <string>
#include <variant>
#include <vector>

namespace kvopt {

/// An attribute in passing.
struct AttributeSpec {
  const char* name;
  std::variant<int64_t, float, std::vector<int64_t>, TensorRef> value;
};

/// Adds to one graph at a time. Values are float, int64 or bool as the operators ask; `real` is the
/// element type of activations.
class GraphBuilder {
public:
  GraphBuilder(Model& built, const DecoderSpec& decoder)
      : model(built), current(&built.graph()), spec(decoder),
        isScript(decoder.spelling == DecoderSpelling::TorchScript) {}

  Graph& graph() { return *current; }
  /// From here on nodes go there; weights stay in the main graph.
  void enter(Graph& subgraph) { current = &subgraph; }
  /// Part of the names of nodes: `layers.0/self_attn`.
  void setScope(std::string path) { scope = std::move(path); }

  /// Bit i of `results` asks for result i.
  Node& node(const char* type, llvm::ArrayRef<Value*> operands,
             llvm::ArrayRef<AttributeSpec> attributes = {}, unsigned results = 1);
  Value& op(const char* type, llvm::ArrayRef<Value*> operands,
            llvm::ArrayRef<AttributeSpec> attributes = {}) {
    return node(type, operands, attributes).result();
  }
  Value& transpose(Value& x, std::vector<int64_t> permutation);
  Value& cast(Value& x, ElementType type);
  /// To float, and back to `real`. TorchScript writes casts that change nothing.
  Value& toFloat(Value& x);
  Value& toReal(Value& x);

  Value& constant(TensorRef data);
  Value& ints(std::initializer_list<int64_t> values);
  Value& integer(int64_t value) { return constant(int64Scalar(value)); }
  /// A scalar of `real`, and of float.
  Value& real(double value) { return constant(floatScalar(spec.real, value)); }
  Value& single(double value) { return constant(floatScalar(ElementType::Float, value)); }

  /// Random weights of the main graph, made when first asked for by that name.
  Value& weight(const std::string& name, llvm::ArrayRef<int64_t> shape, double deviation,
                double centre = 0);
  /// A table of float32 in `real`.
  Value& table(const std::string& name, llvm::ArrayRef<int64_t> shape,
               llvm::ArrayRef<float> values);

  /// x [..,in] · W [in,out] (+ bias), of `gain` times x's deviation when x's columns are
  /// independent. Four-bit numbers where the decoder asks for them.
  Value& linear(Value& x, const std::string& name, int64_t in, int64_t out, double gain,
                bool hasBias = false);
  /// x / sqrt(mean(x²) + 1e-5) · weight over the last axis.
  Value& rmsNorm(Value& x, const std::string& name, int64_t width);
  /// (x - mean) / sqrt(variance + 1e-5) · weight + bias.
  Value& layerNorm(Value& x, const std::string& name, int64_t width);
  Value& silu(Value& x) { return op("Mul", {&x, &op("Sigmoid", {&x})}); }
  /// GELU by tanh, as GPT-2 has it.
  Value& gelu(Value& x);

  /// One extent of a tensor: a scalar (TorchScript) or a list of one (others).
  Value& extent(Value& tensor, int64_t axis);
  Value& listed(Value& length) {
    return isScript ? op("Unsqueeze", {&length, &ints({0})}) : length;
  }
  Value& scalarOf(Value& length) {
    return isScript ? length : op("Squeeze", {&length, &ints({0})});
  }
  Value& concatLists(llvm::ArrayRef<Value*> lists) { return op("Concat", lists, {{"axis", 0}}); }
  Value& reshape(Value& x, llvm::ArrayRef<Value*> lists) {
    return op("Reshape", {&x, &concatLists(lists)});
  }
  Value& unsqueeze(Value& x, std::initializer_list<int64_t> axes) {
    return op("Unsqueeze", {&x, &ints(axes)});
  }
  Value& slice(Value& x, Value& start, Value& end, int64_t axis) {
    return op("Slice", {&x, &start, &end, &ints({axis}), &ints({1})});
  }

private:
  Value& fourBitProduct(Value& x, const std::string& name, int64_t in, int64_t out,
                        double deviation);
  Value& spelledRmsNorm(Value& x, Value& gamma);
  Value& spelledLayerNorm(Value& x, Value& gamma, Value& beta);
  Value& lastAxisMean(Value& x);

  Model& model;
  Graph* current;
  const DecoderSpec& spec;
  bool isScript;
  std::string scope;
  unsigned count = 0;
};

/// What norms add to a variance.
inline constexpr float normEpsilon = 1e-5f;

} // namespace kvopt
