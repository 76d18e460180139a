// What decoders are fed: tokens, masks, positions, element types, refusals.
#include "runtime/session/decoder_inputs.h"

#include "support/diagnostic.h"
#include "tests/runtime/session/counting_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

class DecoderInputsTest : public testing::Test {
protected:
  DecoderInputsTest() : model(ops) {}

  /// The input's elements, or the error.
  std::string built(const char* name, ElementType element, const DecoderStep& step) {
    return built(model.graph().addInput(name, TensorType(element)), step);
  }
  std::string built(const Value& input, const DecoderStep& step,
                    llvm::ArrayRef<ManifestInput> described = {}) {
    const std::string name = input.name().str();
    const ElementType element = input.type().elementType();
    auto made = decoderInputs({&input}, step, std::make_shared<Allocator>(), described);
    if (!made)
      return takeDiagnostic(made.takeError()).message;
    const TensorView& view = made->front().tensor.view;
    EXPECT_EQ(made->front().name, name);
    EXPECT_EQ(view.element, element);
    std::string text = formatted("{}:", joinedText(view.shape, "x"));
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
  EXPECT_THAT(built("input_ids", ElementType::String, twoRows()), testing::HasSubstr("string"));
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

TEST_F(DecoderInputsTest, DescribedInputs) {
  auto described = [&](ElementType element, InputFeed feed, std::vector<ManifestExtent> shape) {
    const std::string name = "d" + std::to_string(model.graph().inputs().size());
    const Value& input =
        model.graph().addInput(name, TensorType(element, Shape(shape.size(), Dim::unknown())));
    return built(input, twoRows(), ManifestInput{name, element, std::move(shape), feed});
  };
  const ElementType whole = ElementType::Int64;
  EXPECT_EQ(described(whole, InputFeed::Tokens, {"batch", "new"}), "2x2: 7 8 9 6");
  EXPECT_EQ(described(ElementType::Int32, InputFeed::Positions, {"batch", "new"}), "2x2: 2 3 0 0");
  EXPECT_EQ(described(whole, InputFeed::Positions, {"new"}), "2: 2 3");
  EXPECT_EQ(described(whole, InputFeed::BatchRows, {"batch"}), "2: 0 1");
  // A text is one segment, and made-up tokens have several.
  EXPECT_EQ(described(whole, InputFeed::Segments, {int64_t{10}}), "10: 0 0 0 0 0 0 0 0 0 0");
  DecoderStep madeUp = twoRows();
  madeUp.isMadeUp = true;
  const Value& segments =
      model.graph().addInput("segments", TensorType(whole, Shape(1, Dim::unknown())));
  const ManifestInput feed{"segments", whole, {int64_t{10}}, InputFeed::Segments};
  EXPECT_EQ(built(segments, madeUp, feed), "10: 0 0 0 0 0 0 0 0 1 1");
  const ManifestInput constant{"constant", whole, {int64_t{3}}, InputFeed::Constant, {4, 5}};
  const Value& fixed =
      model.graph().addInput("constant", TensorType(whole, Shape(1, Dim::unknown())));
  EXPECT_EQ(built(fixed, twoRows(), constant), "3: 4 5 4");
  // Causal where there are queries; what is padding is hidden from all.
  EXPECT_EQ(
      described(ElementType::Bool, InputFeed::VisibleKeys, {"batch", int64_t{1}, "new", "total"}),
      "2x1x2x4: 1 1 1 0 1 1 1 1 0 0 0 0 0 0 0 1");
  EXPECT_EQ(described(ElementType::Bool, InputFeed::HiddenKeys, {"new", "total"}),
            "2x4: 0 0 0 1 0 0 0 0");
  EXPECT_EQ(described(whole, InputFeed::VisibleKeys, {"batch", int64_t{6}}),
            "2x6: 1 1 1 1 0 0 0 0 0 1 0 0");
  // Of the new rows alone.
  EXPECT_EQ(described(whole, InputFeed::VisibleKeys, {int64_t{1}, int64_t{1}, "new", "new"}),
            "1x1x2x2: 1 0 1 1");
}

TEST_F(DecoderInputsTest, AdditiveMasksAreFinite) {
  const ManifestInput mask{"bias", ElementType::Float16, {"new", "total"}, InputFeed::AdditiveMask};
  const Value& input = model.graph().addInput(
      "bias", TensorType(ElementType::Float16, {Dim::symbol("S"), Dim::symbol("T")}));
  DecoderStep step;
  step.tokens = {{1, 2}};
  auto made = llvm::cantFail(decoderInputs({&input}, step, std::make_shared<Allocator>(), mask));
  const auto* bits = made.front().tensor.view.as<uint16_t>();
  EXPECT_EQ(std::vector<uint16_t>(bits, bits + 4), (std::vector<uint16_t>{0, 0xfbff, 0, 0}));
}

TEST_F(DecoderInputsTest, RecipesComeFirst) {
  const Value& tokens = model.graph().addInput(
      "input_ids", TensorType(ElementType::Int64, {Dim::symbol("B"), Dim::symbol("S")}));
  const Value& bare = model.graph().addInput("bare", TensorType(ElementType::Int64));
  auto with = [&](const Value& input, const std::string& recipe) {
    const InputRecipe parsed = llvm::cantFail(parseInputRecipe(recipe));
    DecoderStep step = twoRows();
    step.recipes = parsed;
    return built(input, step);
  };
  EXPECT_EQ(with(tokens, "input_ids=3,4,5@2,2"), "2x2: 3 4 5 3");
  EXPECT_EQ(with(bare, "bare=past_length@"), ": 2");
  EXPECT_EQ(with(bare, "bare=total_length@1"), "1: 4");
  EXPECT_EQ(with(bare, "bare=range@2,past"), "2x2: 0 1 0 1");
  EXPECT_EQ(with(bare, "bare=visible_keys@batch,total"), "2x4: 1 1 1 1 0 0 0 1");
  EXPECT_THAT(with(bare, "bare=zeros"), testing::HasSubstr("does not declare the input's rank"));
}

TEST_F(DecoderInputsTest, NumbersHaveToFitTheType) {
  const Value& small = model.graph().addInput("small", TensorType(ElementType::Int32));
  const Value& flag = model.graph().addInput("flag", TensorType(ElementType::Bool));
  auto with = [&](const Value& input, const std::string& recipe) {
    const InputRecipe parsed = llvm::cantFail(parseInputRecipe(recipe));
    DecoderStep step = twoRows();
    step.recipes = parsed;
    return built(input, step);
  };
  EXPECT_EQ(with(small, "small=2147483647,-2147483648@2"), "2: 2147483647 -2147483648");
  for (const char* number : {"2147483648", "-2147483649", "1e300"})
    EXPECT_THAT(with(small, formatted("small={}@", number)),
                testing::HasSubstr("does not fit in the input's type int32"));
  EXPECT_EQ(with(flag, "flag=1,0@2"), "2: 1 0");
}

TEST_F(DecoderInputsTest, GuessesAreNamed) {
  const Value& kind = model.graph().addInput(
      "kind", TensorType(ElementType::Int64, {Dim::symbol("B"), Dim::fixed(2)}));
  const Value& flag = model.graph().addInput("flag", TensorType(ElementType::Bool, Shape{}));
  EXPECT_EQ(built(kind, twoRows()), "2x2: 0 0 0 0");
  EXPECT_EQ(built(flag, twoRows()), ": 1");
  const Value& mask = model.graph().addInput("attention_mask", TensorType(ElementType::Int64));
  const ManifestInput described{"kind", ElementType::Int64, {"batch"}, InputFeed::BatchRows};
  const InputRecipe recipe = llvm::cantFail(parseInputRecipe("flag=0"));
  EXPECT_EQ(guessedInputs({&kind, &flag, &mask}, {}, {}),
            (std::vector<std::string>{"kind", "flag"}));
  EXPECT_EQ(guessedInputs({&kind, &flag, &mask}, {}, described),
            (std::vector<std::string>{"flag"}));
  EXPECT_TRUE(guessedInputs({&kind, &flag, &mask}, recipe, described).empty());
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
  const Tensor cacheRows = llvm::cantFail(session->cacheRows(0));
  const TensorView cache = cacheRows.view;
  EXPECT_EQ(cache.shape, Extents({2, 4, 1}));
  EXPECT_EQ(cache.as<float>()[cache.strides[0] + 3 * cache.strides[1]], 4);
}

} // namespace
} // namespace kvopt
