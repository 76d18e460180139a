// Elementwise activations and softmax.
#include "ir/elementwise_definition.h"

namespace kvopt::ir {

void register_activation(OpRegistry& registry) {
  const auto activation = [&](const char* name, int64_t since, const char* operand = "X",
                              const char* result = "Y") {
    return defineElementwise(registry, name, since, {operand}, result, ElementFunction::Nonlinear);
  };
  activation("Erf", 9, "input", "output");
  activation("Tanh", 6, "input", "output");
  activation("Sigmoid", 6);
  activation("Relu", 6);
  activation("HardSwish", 14);
  activation("Mish", 18);
  activation("Softsign", 1, "input", "output");
  activation("Gelu", 20).attr("approximate", "none");
  activation("Swish", 24).attr("alpha", 1.0f);
  activation("Celu", 12).attr("alpha", 1.0f);
  activation("Elu", 6).attr("alpha", 1.0f);
  activation("LeakyRelu", 6).attr("alpha", 0.01f);
  activation("ThresholdedRelu", 10).attr("alpha", 1.0f);
  activation("HardSigmoid", 6).attr("alpha", 0.2f).attr("beta", 0.5f);
  activation("Selu", 6)
      .attr("alpha", 1.67326319217681884765625f)
      .attr("gamma", 1.05070102214813232421875f);
  activation("Shrink", 9, "input", "output").attr("bias", 0.0f).attr("lambd", 0.5f);
  activation("PRelu", 7).in("slope");
  defineElementwise(registry, "SwiGLU", 28, {"A", "B"}, "Y", ElementFunction::Nonlinear)
      .attr("alpha", 1.0f);
  for (const char* name : {"Softmax", "LogSoftmax"}) {
    define(registry, name, 1).in("input").out("output").attr("axis", int64_t{1});
    define(registry, name, 13).in("input").out("output").attr("axis", int64_t{-1});
  }
}

} // namespace kvopt::ir
