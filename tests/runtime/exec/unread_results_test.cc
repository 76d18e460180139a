// Nodes of which only later results are read: what they compute besides is forgotten.
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// The numbers of the model's only output, of inputs that each hold 0, 1, 2, … in their type.
std::vector<double> resultOf(const std::string& text, std::vector<Extents> shapes) {
  auto model = llvm::cantFail(readText(text, testOperators()));
  llvm::cantFail(inferShapes(model->graph()));
  auto executor = llvm::cantFail(Executor::create(*model, testKernels()));
  auto allocator = std::make_shared<Allocator>();
  std::vector<Tensor> inputs;
  std::vector<TensorView> views;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const ElementType element = model->graph().inputs()[i]->type().elementType();
    inputs.push_back(llvm::cantFail(Tensor::create(allocator, element, shapes[i])));
    const TensorView& view = inputs.back().view;
    for (int64_t at = 0; at < view.elementCount(); ++at)
      if (element == ElementType::Int64)
        view.as<int64_t>()[at] = 1;
      else
        view.as<float>()[at] = static_cast<float>(at);
    views.push_back(view);
  }
  // The second run finds what the first one kept.
  llvm::cantFail(executor->run(views));
  const std::vector<Tensor> outputs = llvm::cantFail(executor->run(views));
  std::vector<double> numbers;
  for (int64_t at = 0; at < outputs[0].view.elementCount(); ++at)
    numbers.push_back(outputs[0].view.element == ElementType::Int64
                          ? static_cast<double>(outputs[0].view.as<int64_t>()[at])
                          : static_cast<double>(outputs[0].view.as<float>()[at]));
  return numbers;
}

TEST(UnreadResults, OfAttentionThatUpdatesACache) {
  const std::vector<double> present = resultOf(
      R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
      g (float[1, 1, 1, 2] q, float[1, 1, 1, 2] k, float[1, 1, 1, 2] v, float[1, 1, 3, 2] past_k,
         float[1, 1, 3, 2] past_v, int64[1] length) => (float[1, 1, 3, 2] kept) {
        o, present_k, present_v =
          ai.kvopt.InPlaceKvSdpa <scale = 1.0> (q, k, v, past_k, past_v, length)
        kept = Identity (present_k)
      })",
      {{1, 1, 1, 2}, {1, 1, 1, 2}, {1, 1, 1, 2}, {1, 1, 3, 2}, {1, 1, 3, 2}, {1}});
  EXPECT_EQ(present, (std::vector<double>{0, 1, 0, 1, 4, 5}));
}

TEST(UnreadResults, OfAttentionWithAPast) {
  const std::vector<double> present = resultOf(
      R"(<ir_version: 10, opset_import: ["" : 23]>
      g (float[1, 1, 1, 2] q, float[1, 1, 1, 2] k, float[1, 1, 1, 2] v, float[1, 1, 2, 2] past_k,
         float[1, 1, 2, 2] past_v) => (float[1, 1, 3, 2] kept) {
        o, present_k, present_v = Attention (q, k, v, , past_k, past_v)
        kept = Identity (present_v)
      })",
      {{1, 1, 1, 2}, {1, 1, 1, 2}, {1, 1, 1, 2}, {1, 1, 2, 2}, {1, 1, 2, 2}});
  EXPECT_EQ(present, (std::vector<double>{0, 1, 2, 3, 0, 1}));
}

TEST(UnreadResults, OfTopKAndOfRoundedRows) {
  EXPECT_EQ(resultOf(R"(<ir_version: 8, opset_import: ["" : 17]>
                     g (float[4] x) => (int64[2] at) {
                       two = Constant <value_ints = [2]> ()
                       largest, at = TopK (x, two)
                     })",
                     {{4}}),
            (std::vector<double>{3, 2}));
  EXPECT_EQ(resultOf(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
                     g (float[1, 128] x) => (float[1, 1] scales) {
                       codes, scales = ai.kvopt.QuantizeRows (x)
                     })",
                     {{1, 128}}),
            (std::vector<double>{1}));
}

/// Computed once, before the first run.
TEST(UnreadResults, OfConstants) {
  EXPECT_EQ(resultOf(R"(<ir_version: 8, opset_import: ["" : 17]>
                     g (float[4] x) => (float[4] y) {
                       numbers = Constant <value_floats = [3.0, 7.0, 5.0]> ()
                       one = Constant <value_ints = [1]> ()
                       largest, at = TopK (numbers, one)
                       shift = Cast <to = 1> (at)
                       y = Add (x, shift)
                     })",
                     {{4}}),
            (std::vector<double>{1, 2, 3, 4}));
}

} // namespace
} // namespace kvopt
