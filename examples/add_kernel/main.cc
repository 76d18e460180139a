// A new operator with its kernel: my.domain::Swish<beta>(x) = x * sigmoid(beta * x). In the tree it
// would consist of the files ir/ops/swish.cc and runtime/kernels/elementwise/swish.cc.
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"

#include <cmath>
#include <cstdio>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error inferSwish(ShapeContext& context) {
  context.setResult(0, context.type(0));
  return llvm::Error::success();
}

void defineSwish(OpRegistry& registry) {
  define(registry, "my.domain::Swish", 1).in("x").out("y").attr("beta", 1.0f).shape(inferSwish);
}

llvm::Error swish(KernelContext& context) {
  const TensorView& x = context.in(0);
  if (x.element != ElementType::Float)
    return context.error("only float is supported");
  auto y = context.output(0, x.element, x.shape);
  if (!y)
    return y.takeError();
  float beta = context.node().floatAttr("beta", 1.0f);
  for (int64_t i = 0; i < x.elementCount(); ++i)
    y->as<float>()[i] = x.as<float>()[i] / (1.0f + std::exp(-beta * x.as<float>()[i]));
  return llvm::Error::success();
}

constexpr const char* text = R"(
<ir_version: 8, opset_import: ["" : 17, "my.domain" : 1]>
g (float[n] x) => (float[n] z)
{
  y = my.domain.Swish <beta = 2.0> (x)
  z = Neg (y)
}
)";

llvm::Error run() {
  OpRegistry ops;
  registerAll(ops);
  defineSwish(ops);
  KernelRegistry kernels;
  registerAll(kernels);
  kernels.add("my.domain::Swish", 1, swish);

  auto model = readText(text, ops);
  if (!model)
    return model.takeError();
  if (llvm::Error error = inferShapes((*model)->graph()))
    return error;
  auto executor = Executor::create(**model, kernels);
  if (!executor)
    return executor.takeError();
  float input[] = {-1.0f, 0.0f, 2.0f};
  auto view = TensorView::contiguous(ElementType::Float, {3}, reinterpret_cast<std::byte*>(input));
  auto outputs = (*executor)->run(llvm::ArrayRef<NamedView>{{"x", view}});
  if (!outputs)
    return outputs.takeError();
  const TensorView& result = outputs->front().view;
  for (int64_t i = 0; i < 3; ++i) {
    float expected = -input[i] / (1.0f + std::exp(-2.0f * input[i]));
    std::printf("swish(%g) -> %g\n", static_cast<double>(input[i]),
                static_cast<double>(result.as<float>()[i]));
    if (std::fabs(result.as<float>()[i] - expected) > 1e-6f)
      return invalid("element {} is {}, not {}", i, result.as<float>()[i], expected);
  }
  return llvm::Error::success();
}

} // namespace
} // namespace kvopt

int main() {
  if (llvm::Error error = kvopt::run()) {
    std::fprintf(stderr, "%s\n", kvopt::takeDiagnostic(std::move(error)).str().c_str());
    return 1;
  }
  return 0;
}
