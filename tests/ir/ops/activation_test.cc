// Shape rules of activations and softmax.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(ActivationShapes, Elementwise) {
  expectShapes({
      {13, "float[B, \"P + S\"] x", "", "y = Tanh(x)", "float[B, P + S]"},
      {20, "float16[B, ?] x", "", "y = Gelu <approximate = \"tanh\">(x)", "float16[B, ?]"},
      {19, "float16[B, ?] x", "", "y = Gelu(x)", "undefined"},
      {13, "float[] x", "", "y = Erf(x)", "float"},
  });
}

TEST(ActivationShapes, Softmax) {
  expectShapes({
      {13, "float[B, S] x", "", "y = Softmax(x)", "float[B, S]"},
      {13, "float[B, S] x", "", "y = Softmax <axis = -2>(x)", "float[B, S]"},
      {13, "float[B, S] x", "", "y = Softmax <axis = 2>(x)", "error: axis 2 is outside rank 2"},
      {13, "float[B, S] x", "", "y = LogSoftmax <axis = -3>(x)",
       "error: axis -3 is outside rank 2"},
      {13, "float[] x", "", "y = Softmax <axis = 7>(x)", "undefined"},
  });
}

TEST(ActivationShapes, SoftmaxOfMatricesUntilOpset12) {
  expectShapes({
      {12, "float[B, S] x", "", "y = Softmax <axis = 2>(x)", "float[B, S]"},
      {12, "float[B, S] x", "", "y = Softmax <axis = 3>(x)", "error: axis 3 is outside rank 2"},
  });
}

} // namespace
} // namespace kvopt
