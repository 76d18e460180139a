// Shape rules of embedding and activation operators of com.microsoft.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(ContribNormalizationShapes, Embedding) {
  const char* inputs = "int32[B, S] ids, float16[V, D] words, float16[P, D] places, float16[D] w";
  expectShapes({
      {17, inputs, "",
       "y, n, s = com.microsoft.EmbedLayerNormalization(ids, \"\", words, places, \"\", w, w)",
       "float16[B, S, D]; int32[B]; float16[B, S, D]"},
      {17, "int32[S] ids, float[V, D] t, float[D] w", "",
       "y = com.microsoft.EmbedLayerNormalization(ids, \"\", t, t, \"\", w, w)",
       "error: operand 0 is int32[S], its rank should be 2"},
  });
}

TEST(ContribNormalizationShapes, Activation) {
  expectShapes({{17, "float[B, S] x", "", "y = com.microsoft.QuickGelu(x)", "float[B, S]"}});
}

TEST(ContribNormalizationShapes, SelectionsAndNorms) {
  expectShapes({
      {17, "float[B, S] x", "", "y = ArgMin <axis = 1, keepdims = 0> (x)", "int64[B]"},
      {18, "float[B, S] x", "int64[1] a = {1}", "y = ReduceL2(x, a)", "float[B, 1]"},
      {13, "float[B, S] x", "", "y = ReduceSumSquare <axes = [0], keepdims = 0> (x)", "float[S]"},
      {17, "float[B, S] x", "", "y = Softplus(x)", "float[B, S]"},
  });
}

} // namespace
} // namespace kvopt
