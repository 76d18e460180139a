// Shape rules of normalizations.
#include "tests/ir/shapes/shape_rule.h"

namespace kvopt {
namespace {

TEST(NormalizationShapes, Statistics) {
  expectShapes({
      {17, "float16[B, S, D] x, float16[D] w", "", "y, m, d = LayerNormalization(x, w)",
       "float16[B, S, D]; float[B, S, 1]; float[B, S, 1]"},
      {17, "float16[B, S, D] x, float16[D] w", "",
       "y, m = LayerNormalization <axis = 1, stash_type = 16>(x, w)",
       "float16[B, S, D]; bfloat16[B, 1, 1]"},
      {17, "float[B, S, D] x, float[D] w", "",
       "y, m = LayerNormalization <stash_type = 4294967297>(x, w)", "undefined; undefined"},
      {17, "float[B, S, D] x, float[D] w", "", "y = LayerNormalization <axis = 3>(x, w)",
       "error: axis 3 is outside rank 3"},
      {17, "float[] x, float[D] w", "", "y, m = LayerNormalization(x, w)", "float; float"},
  });
}

TEST(NormalizationShapes, TheScaleGivesTheType) {
  expectShapes({
      {23, "float[B, S, D] x, float16[D] w", "", "y = RMSNormalization(x, w)", "float16[B, S, D]"},
      {17, "float16[B, S, D] x, float[D] w", "",
       "y, i = com.microsoft.SimplifiedLayerNormalization(x, w)", "float[B, S, D]; float[B, S, 1]"},
      {22, "float[B, S, D] x, float[D] w", "", "y = RMSNormalization(x, w)", "undefined"},
  });
}

} // namespace
} // namespace kvopt
