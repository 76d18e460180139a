// Shape rules of FlexAttention.
#include "ir/shapes/shape_inference.h"
#include "tests/ir/text/text_fixture.h"

namespace kvopt {
using namespace ir;

namespace {

std::string inferred(const char* attributes, const char* value = "float16[B, 2, T, 5] v") {
  auto model = readOrFail(formatted(R"(<ir_version: 10, opset_import: ["" : 24,
 "ai.onnx.preview" : 1]> g (float16[B, 8, S, 4] q, float16[B, 2, T, 4] k, {}) => ()
{{ y = ai.onnx.preview.FlexAttention{}(q, k, v) }})",
                                    value, attributes));
  if (llvm::Error error = inferShapes(model->graph()))
    return takeDiagnostic(std::move(error)).message;
  return model->graph().nodes().back().result(0).type().str();
}

TEST(FlexAttentionShapes, ResultAndSubgraphs) {
  EXPECT_EQ(inferred(""), "float16[B, 8, S, 5]");
  EXPECT_EQ(inferred("<score_mod = f (float[B, H, S, T] s) => (float[B, H, S, T] s) {}>"),
            "float16[B, 8, S, 5]");
  EXPECT_EQ(inferred("<prob_mod = f () => (float x) <float x = {1}> {}>"),
            "prob_mod is not a graph of one input and one output");
  EXPECT_EQ(inferred("", "float16[B, 3, T, 5] v"), "head counts of key and value differ: 2 and 3");
}

} // namespace
} // namespace kvopt
