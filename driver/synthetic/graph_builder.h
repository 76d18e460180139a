// GraphBuilder: operators, constants and weights in the habits of one exporter.
#pragma once

#include "driver/synthetic/decoder_spec.h"
#include "ir/model.h"

#include <string>
#include <variant>
#include <vector>

namespace kvopt::driver {

/// An attribute in passing.
struct AttributeSpec {
  const char* name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, ir::TensorRef> value;
};

/// Adds to one graph at a time. Values are float, int64 or bool as the operators ask; `real` is the
/// element type of activations.
class GraphBuilder {
public:
  GraphBuilder(ir::Model& built, const DecoderSpec& decoder)
      : model(built), current(&built.graph()), spec(decoder),
        isScript(decoder.spelling == DecoderSpelling::TorchScript) {}

  ir::Graph& graph() { return *current; }
  /// From here on nodes go there; weights stay in the main graph.
  void enter(ir::Graph& subgraph) { current = &subgraph; }
  /// Part of the names of nodes: `layers.0/self_attn`.
  void setScope(std::string path) { scope = std::move(path); }

  /// Bit i of `results` asks for result i.
  ir::Node& node(const char* type, llvm::ArrayRef<ir::Value*> operands,
                 llvm::ArrayRef<AttributeSpec> attributes = {}, unsigned results = 1);
  ir::Value& op(const char* type, llvm::ArrayRef<ir::Value*> operands,
                llvm::ArrayRef<AttributeSpec> attributes = {}) {
    return node(type, operands, attributes).result();
  }
  ir::Value& transpose(ir::Value& x, std::vector<int64_t> permutation);
  ir::Value& cast(ir::Value& x, ir::ElementType type);
  /// To float, and back to `real`. TorchScript writes casts that change nothing.
  ir::Value& toFloat(ir::Value& x);
  ir::Value& toReal(ir::Value& x);

  ir::Value& constant(ir::TensorRef data);
  ir::Value& ints(std::initializer_list<int64_t> values);
  ir::Value& integer(int64_t value) { return constant(ir::int64Scalar(value)); }
  /// A scalar of `real`, and of float.
  ir::Value& real(double value) { return constant(ir::floatScalar(spec.real, value)); }
  ir::Value& single(double value) {
    return constant(ir::floatScalar(ir::ElementType::Float, value));
  }

  /// Random weights of the main graph, made when first asked for by that name.
  ir::Value& weight(const std::string& name, llvm::ArrayRef<int64_t> shape, double deviation,
                    double centre = 0);
  /// A table of float32 in `real`.
  ir::Value& table(const std::string& name, llvm::ArrayRef<int64_t> shape,
                   llvm::ArrayRef<float> values);

  /// x [..,in] · W [in,out] (+ bias), of `gain` times x's deviation when x's columns are
  /// independent. Four-bit numbers where the decoder asks for them.
  ir::Value& linear(ir::Value& x, const std::string& name, int64_t in, int64_t out, double gain,
                    bool hasBias = false);
  /// x / sqrt(mean(x²) + 1e-5) · weight over the last axis.
  ir::Value& rmsNorm(ir::Value& x, const std::string& name, int64_t width);
  /// (x - mean) / sqrt(variance + 1e-5) · weight + bias.
  ir::Value& layerNorm(ir::Value& x, const std::string& name, int64_t width);
  ir::Value& silu(ir::Value& x) { return op("Mul", {&x, &op("Sigmoid", {&x})}); }
  /// GELU by tanh, as GPT-2 has it.
  ir::Value& gelu(ir::Value& x);

  /// One extent of a tensor: a scalar (TorchScript) or a list of one (others).
  ir::Value& extent(ir::Value& tensor, int64_t axis);
  ir::Value& listed(ir::Value& length) {
    return isScript ? op("Unsqueeze", {&length, &ints({0})}) : length;
  }
  ir::Value& scalarOf(ir::Value& length) {
    return isScript ? length : op("Squeeze", {&length, &ints({0})});
  }
  ir::Value& concatLists(llvm::ArrayRef<ir::Value*> lists) {
    return op("Concat", lists, {{"axis", 0}});
  }
  ir::Value& reshape(ir::Value& x, llvm::ArrayRef<ir::Value*> lists) {
    return op("Reshape", {&x, &concatLists(lists)});
  }
  ir::Value& unsqueeze(ir::Value& x, std::initializer_list<int64_t> axes) {
    return op("Unsqueeze", {&x, &ints(axes)});
  }
  ir::Value& slice(ir::Value& x, ir::Value& start, ir::Value& end, int64_t axis) {
    return op("Slice", {&x, &start, &end, &ints({axis}), &ints({1})});
  }

private:
  ir::Value& fourBitProduct(ir::Value& x, const std::string& name, int64_t in, int64_t out,
                            double deviation);
  ir::Value& spelledRmsNorm(ir::Value& x, ir::Value& gamma);
  ir::Value& spelledLayerNorm(ir::Value& x, ir::Value& gamma, ir::Value& beta);
  ir::Value& lastAxisMean(ir::Value& x);

  ir::Model& model;
  ir::Graph* current;
  const DecoderSpec& spec;
  bool isScript;
  std::string scope;
  unsigned count = 0;
};

/// What norms add to a variance.
inline constexpr float normEpsilon = 1e-5f;

} // namespace kvopt::driver
