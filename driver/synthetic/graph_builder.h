// GraphBuilder: operators, constants and weights in the style of one exporter.
#pragma once

#include "driver/synthetic/decoder_spec.h"
#include "ir/model.h"

#include <string>
#include <variant>
#include <vector>

namespace kvopt::driver {

/// An attribute of a node to build.
struct AttributeSpec {
  const char* name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, ir::TensorRef> value;
};

/// Adds nodes to one graph at a time. Values are float, int64 or bool, as the operators require;
/// `real` is the element type of activations.
class GraphBuilder {
public:
  GraphBuilder(ir::Model& built, const DecoderSpec& decoder)
      : model(built), current(&built.graph()), spec(decoder),
        isScript(decoder.spelling == DecoderSpelling::TorchScript) {}

  ir::Graph& graph() { return *current; }
  /// Adds further nodes to `subgraph`; weights stay in the main graph.
  void enter(ir::Graph& subgraph) { current = &subgraph; }
  /// Sets the scope in names of nodes: `layers.0/self_attn`.
  void setScope(std::string path) { scope = std::move(path); }

  /// Adds a node. Bit i of `results` requests result i.
  ir::Node& node(const char* type, llvm::ArrayRef<ir::Value*> operands,
                 llvm::ArrayRef<AttributeSpec> attributes = {}, unsigned results = 1);
  ir::Value& op(const char* type, llvm::ArrayRef<ir::Value*> operands,
                llvm::ArrayRef<AttributeSpec> attributes = {}) {
    return node(type, operands, attributes).result();
  }
  ir::Value& transpose(ir::Value& x, std::vector<int64_t> permutation);
  ir::Value& cast(ir::Value& x, ir::ElementType type);
  /// Casts to float and back to `real`. TorchScript also writes casts that change nothing.
  ir::Value& toFloat(ir::Value& x);
  ir::Value& toReal(ir::Value& x);

  ir::Value& constant(ir::TensorRef data);
  ir::Value& ints(std::initializer_list<int64_t> values);
  ir::Value& integer(int64_t value) { return constant(ir::int64Scalar(value)); }
  /// Scalars of type `real` and of type float.
  ir::Value& real(double value) { return constant(ir::floatScalar(spec.real, value)); }
  ir::Value& single(double value) {
    return constant(ir::floatScalar(ir::ElementType::Float, value));
  }

  /// Random weights of the main graph, created when `name` is first requested.
  ir::Value& weight(const std::string& name, llvm::ArrayRef<int64_t> shape, double deviation,
                    double centre = 0);
  /// A table of float32 numbers, converted to `real`.
  ir::Value& table(const std::string& name, llvm::ArrayRef<int64_t> shape,
                   llvm::ArrayRef<float> values);

  /// x [..,in] · W [in,out] (+ bias). Its deviation is `gain` times that of x if the columns of x
  /// are independent. W holds four-bit numbers if the spec says so.
  ir::Value& linear(ir::Value& x, const std::string& name, int64_t in, int64_t out, double gain,
                    bool hasBias = false);
  /// x / sqrt(mean(x²) + 1e-5) · weight over the last axis.
  ir::Value& rmsNorm(ir::Value& x, const std::string& name, int64_t width);
  /// (x - mean) / sqrt(variance + 1e-5) · weight + bias.
  ir::Value& layerNorm(ir::Value& x, const std::string& name, int64_t width);
  ir::Value& silu(ir::Value& x) { return op("Mul", {&x, &op("Sigmoid", {&x})}); }
  /// GELU with tanh, as in GPT-2.
  ir::Value& gelu(ir::Value& x);

  /// One extent of a tensor: a scalar (TorchScript) or a list of one element (others).
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

/// The number that norms add to a variance.
inline constexpr float normEpsilon = 1e-5f;

} // namespace kvopt::driver
