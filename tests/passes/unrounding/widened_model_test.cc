// Twins in f32: 16-bit numbers keep their values, quantized weights get those they stand for.
#include "passes/unrounding/widened_model.h"

#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "support/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvopt {
using namespace ir;
using namespace runtime;
using namespace unrounding;

namespace {

class WidenedModelTest : public testing::Test {
protected:
  void SetUp() override {
    registerAll(ops);
    registerAll(kernels);
  }

  std::unique_ptr<Model> read(const std::string& text) {
    auto model = llvm::cantFail(readText(text, ops));
    llvm::cantFail(inferShapes(model->graph()));
    return model;
  }

  std::string refusal(Model& model) {
    Manifest none;
    llvm::Error error = widenModel(model, none);
    return error ? takeDiagnostic(std::move(error)).str() : "";
  }

  /// Runs a model with one input of f32, [2,K], that counts up from -1 in steps of 1/8.
  std::vector<float> run(const Model& model, int64_t columns) {
    auto executor = llvm::cantFail(Executor::create(model, kernels));
    std::vector<float> values;
    for (int64_t i = 0; i < 2 * columns; ++i)
      values.push_back(-1.0f + 0.125f * static_cast<float>(i));
    auto input = llvm::cantFail(
        Tensor::of<float>(executor->allocator(), ElementType::Float, {2, columns}, values));
    const NamedView views[] = {{"x", input.view}};
    std::vector<Tensor> outputs = llvm::cantFail(executor->run(views));
    EXPECT_EQ(outputs[0].view.element, ElementType::Float);
    const auto* first = outputs[0].view.as<float>();
    return {first, first + outputs[0].view.elementCount()};
  }

  OpRegistry ops;
  KernelRegistry kernels;
};

std::string quantized(const std::string& more, const std::string& operands) {
  return R"(
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (float[2, 16] x) => (float[2, 2] y)
<uint8[2, 1, 8] w = {16, 50, 84, 118, 152, 186, 220, 254, 255, 0, 15, 240, 1, 2, 3, 4},
 float[2] s = {0.5, 2}, )" +
         more + R"( float[2] b = {1, 10}>
{
  y = com.microsoft.MatMulNBits <K = 16, N = 2, bits = 4, block_size = 16> (x, w, s)" +
         operands + R"()
})";
}

TEST_F(WidenedModelTest, QuantizedWeightsBecomeWhatTheyStandFor) {
  struct Case {
    std::string more, operands;
    double zeros[2];
    double bias[2];
  };
  const uint8_t bytes[2][8] = {{16, 50, 84, 118, 152, 186, 220, 254},
                               {255, 0, 15, 240, 1, 2, 3, 4}};
  const double scales[2] = {0.5, 2};
  for (const Case& c :
       {Case{"", "", {8, 8}, {0, 0}}, Case{"uint8[2] z = {3, 250},", ", z", {3, 10}, {0, 0}},
        Case{"float[2] z = {2.5, 9},", ", z,, b", {2.5, 9}, {1, 10}}}) {
    auto model = read(quantized(c.more, c.operands));
    EXPECT_TRUE(narrowNumbersOf(*model).quantizedWeights);
    EXPECT_EQ(refusal(*model), "");
    EXPECT_FALSE(narrowNumbersOf(*model).any());
    const std::vector<float> y = run(*model, 16);
    ASSERT_EQ(y.size(), 4u);
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t n = 0; n < 2; ++n) {
        double sum = c.bias[n];
        for (int64_t k = 0; k < 16; ++k) {
          const double code = bytes[n][k / 2] >> (k % 2 == 0 ? 0 : 4) & 15;
          sum +=
              (-1.0 + 0.125 * static_cast<double>(16 * row + k)) * (code - c.zeros[n]) * scales[n];
        }
        EXPECT_NEAR(y[static_cast<size_t>(2 * row + n)], sum, 1e-4 * std::fabs(sum) + 1e-5);
      }
  }
}

TEST_F(WidenedModelTest, WeightsThatAreNoConstantsOrDoNotFitAreRefused) {
  auto open = read(R"(
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (float[2, 16] x, uint8[2, 1, 8] w, float[2] s) => (float[2, 2] y)
{
  y = com.microsoft.MatMulNBits <K = 16, N = 2, bits = 4, block_size = 16> (x, w, s)
})");
  EXPECT_NE(refusal(*open).find("not a constant"), std::string::npos);
  auto small = read(R"(
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (float[2, 16] x) => (float[2, 2] y)
<uint8[2, 1, 4] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[2] s = {1, 1}>
{
  y = com.microsoft.MatMulNBits <K = 16, N = 2, bits = 4, block_size = 16> (x, w, s)
})");
  EXPECT_NE(refusal(*small).find("another size"), std::string::npos);
}

TEST_F(WidenedModelTest, SixteenBitNumbersKeepTheirValuesEverywhere) {
  for (const char* narrow : {"float16", "bfloat16"}) {
    const std::string code = std::string(narrow) == "float16" ? "10" : "16";
    std::string text = R"(
<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
g (NARROW[2, 4] x) => (NARROW[2, 4] y)
<NARROW[4] w = {0.1, 0.2, 1000, 3}>
{
  c = Constant <value = NARROW[1] {0.3}> ()
  yes = Constant <value = bool {1}> ()
  i = If <then_branch = t () => (NARROW[4] a) <NARROW[4] v = {1, 2, 3, 0.7}> { a = Add(v, c) },
          else_branch = e () => (NARROW[4] d) { d = Identity(w) }> (yes)
  f = Cast <to = 1> (w)
  back = Cast <to = CODE> (f)
  s = own.twice(x)
  p = Mul(s, back)
  y = Add(p, i)
}
<domain: "own", opset_import: ["" : 21]>
twice (a) => (b) { two = Constant <value = NARROW {2}> () b = Mul(a, two) })";
    for (size_t at; (at = text.find("NARROW")) != std::string::npos;)
      text.replace(at, 6, narrow);
    text.replace(text.find("CODE"), 4, code);
    auto model = read(text);
    const NarrowNumbers numbers = narrowNumbersOf(*model);
    const bool isHalf = std::string(narrow) == "float16";
    EXPECT_EQ(numbers.float16, isHalf);
    EXPECT_EQ(numbers.bfloat16, !isHalf);
    EXPECT_EQ(numbers.unitRoundoff(), isHalf ? 0x1p-11 : 0x1p-8);
    Manifest manifest;
    manifest.caches.resize(2);
    manifest.caches[0].dtype = isHalf ? ElementType::Float16 : ElementType::BFloat16;
    manifest.caches[1].dtype = ElementType::Int64;
    llvm::cantFail(widenModel(*model, manifest));
    EXPECT_FALSE(narrowNumbersOf(*model).any());
    EXPECT_EQ(manifest.caches[0].dtype, ElementType::Float);
    EXPECT_EQ(manifest.caches[1].dtype, ElementType::Int64);
    auto rounded = [&](float value) {
      return isHalf ? f16ToFloat(floatToF16(value)) : bf16ToFloat(floatToBf16(value));
    };
    const float weights[] = {0.1f, 0.2f, 1000, 3};
    const float added[] = {1, 2, 3, 0.7f};
    const std::vector<float> y = run(*model, 4);
    ASSERT_EQ(y.size(), 8u);
    for (size_t i = 0; i < 8; ++i)
      EXPECT_EQ(y[i], (-1.0f + 0.125f * static_cast<float>(i)) * 2 * rounded(weights[i % 4]) +
                          (rounded(added[i % 4]) + rounded(0.3f)))
          << i;
  }
}

} // namespace
} // namespace kvopt
