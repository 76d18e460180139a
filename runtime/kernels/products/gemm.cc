// Gemm: Y = alpha * A' * B' + beta * C, where ' transposes if transA or transB, C broadcast to Y.
//
// Versions: from opset 7 (before, broadcasting was an attribute); C is optional from 11.
//
// com.microsoft::FusedGemm is the same with an activation of the sum: Relu, Sigmoid, Tanh,
// LeakyRelu (activation_alpha) or HardSigmoid (activation_alpha, activation_beta); none if the
// attribute is absent or empty. Others are an error that names them.
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/linear.h"
#include "support/format.h"

#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <cmath>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

using Activation = float (*)(float x, float alpha, float beta);

float relu(float x, float, float) { return x < 0 ? 0 : x; }
float sigmoid(float x, float, float) { return 1 / (1 + std::exp(-x)); }
float hyperbolicTangent(float x, float, float) { return std::tanh(x); }
float leakyRelu(float x, float alpha, float) { return x < 0 ? alpha * x : x; }
float hardSigmoid(float x, float alpha, float beta) {
  return std::max(0.0f, std::min(1.0f, alpha * x + beta));
}

llvm::Error computeGemm(KernelContext& context, llvm::function_ref<void(std::span<float>)> finish) {
  const Node& node = context.node();
  const TensorView& a = context.in(0);
  const TensorView& b = context.in(1);
  const TensorView* c = context.input(2);
  if (a.rank() != 2 || b.rank() != 2)
    return context.error("operands must be matrices");
  if (a.element != b.element || (c && c->element != a.element))
    return context.error("operands have different element types");

  LinearProduct product;
  product.transposeA = node.intAttr("transA", 0) != 0;
  const bool transposeB = node.intAttr("transB", 0) != 0;
  product.rows = a.shape[product.transposeA ? 1 : 0];
  product.inner = a.shape[product.transposeA ? 0 : 1];
  product.columns = b.shape[transposeB ? 0 : 1];
  if (b.shape[transposeB ? 1 : 0] != product.inner)
    return context.error(
        formatted("inner extents {} and {} differ", product.inner, b.shape[transposeB ? 1 : 0]));
  Extents shape{product.rows, product.columns};
  if (c && !broadcastsTo(c->shape, shape))
    return context.error("C does not broadcast to the result's shape");
  auto output = context.output(0, a.element, shape);
  if (!output)
    return output.takeError();
  auto left = floatsOf(context, a);
  if (!left)
    return left.takeError();
  auto result = floatResult(context, *output);
  if (!result)
    return result.takeError();
  const float beta = node.floatAttr("beta", 1.0f);
  if (c && beta != 0.0f) {
    auto added = floatsOf(context, *c);
    if (!added)
      return added.takeError();
    const Extents strides = broadcastStrides(*c, shape);
    product.addend = *added;
    product.addendStrides = {strides[0], strides[1]};
    product.beta = beta;
  }
  product.alpha = node.floatAttr("alpha", 1.0f);
  product.a = *left;
  setWeights(context, 1, transposeB, product);
  product.out = *result;
  if (llvm::Error error = multiplyMatrices(context, product))
    return error;
  finish({*result, static_cast<size_t>(output->elementCount())});
  storeFloats(*result, *output);
  return llvm::Error::success();
}

llvm::Error gemm(KernelContext& context) {
  return computeGemm(context, [](std::span<float>) {});
}

llvm::Error fusedGemm(KernelContext& context) {
  const Node& node = context.node();
  const std::string name = node.stringAttr("activation", "").str();
  const Activation activation = llvm::StringSwitch<Activation>(name)
                                    .Case("Relu", relu)
                                    .Case("Sigmoid", sigmoid)
                                    .Case("Tanh", hyperbolicTangent)
                                    .Case("LeakyRelu", leakyRelu)
                                    .Case("HardSigmoid", hardSigmoid)
                                    .Default(nullptr);
  if (!activation && !name.empty())
    return context.error(formatted("the activation '{}' is not known", name));
  const bool isHard = name == "HardSigmoid";
  const float alpha = node.floatAttr("activation_alpha", isHard ? 0.2f : 0.01f);
  const float beta = node.floatAttr("activation_beta", 0.5f);
  return computeGemm(context, [&](std::span<float> sums) {
    if (activation)
      for (float& sum : sums)
        sum = activation(sum, alpha, beta);
  });
}

} // namespace

void register_gemm(KernelRegistry& registry) {
  registry.add("Gemm", 7, gemm).weightOperand = 1;
  registry.add("com.microsoft::FusedGemm", 1, fusedGemm).weightOperand = 1;
}

} // namespace kvopt::kernels
