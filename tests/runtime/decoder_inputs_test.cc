// What decoders are fed: tokens, masks, positions, element types, refusals.
#include "runtime/decoder_inputs.h"

#include "ir/diagnostic.h"
#include "tests/runtime/counting_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
namespace {

class DecoderInputsTest : public testing::Test {
protected:
  DecoderInputsTest() : model(ops) {}

  /// The input's elements, or the error.
  std::string built(const char* name, ElementType element, const DecoderStep& step) {
    Value& input = model.graph().addInput(name, TensorType(element));
    auto made = decoderInputs({&input}, step, std::make_shared<Allocator>());
    if (!made)
      return takeDiagnostic(made.takeError()).message;
    const TensorView& view = made->front().tensor.view;
    EXPECT_EQ(made->front().name, name);
    EXPECT_EQ(view.element, element);
    std::string text = fmt::format("{}:", fmt::join(view.shape, "x"));
    for (int64_t i = 0; i < view.elementCount(); ++i)
      text += " " + std::to_string(elementOf(view, i));
    return text;
  }

  static int64_t elementOf(const TensorView& view, int64_t i) {
    switch (view.element) {
    case ElementType::Int64:
      return view.as<int64_t>()[i];
    case ElementType::Int32:
      return view.as<int32_t>()[i];
    case ElementType::Bool:
      return view.as<uint8_t>()[i];
    default:
      return static_cast<int64_t>(view.as<float>()[i]);
    }
  }

  OpRegistry ops;
  Model model;
};

DecoderStep twoRows() {
  DecoderStep step;
  step.tokens = {{7, 8}, {9, 6}};
  step.pastLength = 2;
  // Row 1 is padded on the left by three.
  step.visible = {{1, 1, 1, 1}, {0, 0, 0, 1}};
  return step;
}

TEST_F(DecoderInputsTest, TokensMaskAndPositions) {
  EXPECT_EQ(built("input_ids", ElementType::Int64, twoRows()), "2x2: 7 8 9 6");
  EXPECT_EQ(built("decoder_input_ids", ElementType::Int32, twoRows()), "2x2: 7 8 9 6");
  EXPECT_EQ(built("attention_mask", ElementType::Bool, twoRows()), "2x4: 1 1 1 1 0 0 0 1");
  EXPECT_EQ(built("position_ids", ElementType::Int64, twoRows()), "2x2: 2 3 0 0");
  EXPECT_EQ(built("cache_position", ElementType::Int64, twoRows()), "2: 2 3");
}

TEST_F(DecoderInputsTest, NothingHidden) {
  DecoderStep step;
  step.tokens = {{5, 5, 5}};
  step.pastLength = 1;
  EXPECT_EQ(built("attention_mask", ElementType::Float, step), "1x4: 1 1 1 1");
  EXPECT_EQ(built("position_ids", ElementType::Int32, step), "1x3: 1 2 3");
}

TEST_F(DecoderInputsTest, Refuses) {
  EXPECT_THAT(built("pixel_values", ElementType::Float, twoRows()),
              testing::HasSubstr("'pixel_values' is not one"));
  EXPECT_THAT(built("input_ids", ElementType::Double, twoRows()), testing::HasSubstr("double"));
  DecoderStep step = twoRows();
  step.tokens[1].pop_back();
  EXPECT_THAT(built("attention_mask", ElementType::Int64, step), testing::HasSubstr("differ"));
  step = twoRows();
  step.visible[1].pop_back();
  EXPECT_THAT(built("position_ids", ElementType::Int64, step),
              testing::HasSubstr("3 positions, there are 4"));
  step.visible.pop_back();
  EXPECT_THAT(built("cache_position", ElementType::Int64, step), testing::HasSubstr("batch size"));
  EXPECT_THAT(built("token", ElementType::Int64, DecoderStep()),
              testing::HasSubstr("without tokens"));
}

TEST_F(DecoderInputsTest, StepsASession) {
  const test::CountingModel counting;
  auto session = counting.session(2);
  DecoderStep step;
  step.tokens = {{1, 2}, {3, 4}};
  const StepResult first = llvm::cantFail(stepDecoder(*session, step));
  ASSERT_NE(first.find("logits"), nullptr);
  EXPECT_EQ(first.find("logits")->view.shape, Extents({2, 2, 8}));
  EXPECT_EQ(session->length(), 2);
  step.pastLength = 2;
  llvm::cantFail(stepDecoder(*session, step));
  const TensorView cache = session->cacheView(0);
  EXPECT_EQ(cache.shape, Extents({2, 4, 1}));
  EXPECT_EQ(cache.as<float>()[cache.strides[0] + 3 * cache.strides[1]], 4);
}

} // namespace
} // namespace kvopt
