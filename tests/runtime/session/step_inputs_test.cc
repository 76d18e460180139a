// Inputs that are kept from step to step are those that are made anew, in the same memory.
#include "runtime/session/step_inputs.h"

#include "ir/op.h"
#include "runtime/session/decoder_inputs.h"
#include "support/diagnostic.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

class StepInputsTest : public testing::Test {
protected:
  StepInputsTest() : model(ops) {}

  void add(const char* name, ElementType element, InputFeed feed,
           std::vector<ManifestExtent> shape) {
    const Shape extents(shape.size(), Dim::unknown());
    described.push_back({name, element, std::move(shape), feed});
    inputs.push_back(&model.graph().addInput(name, TensorType(element, extents)));
  }

  void addEveryFeed() {
    add("tokens", ElementType::Int64, InputFeed::Tokens, {"batch", "new"});
    add("positions", ElementType::Int32, InputFeed::Positions, {"batch", "new"});
    add("places", ElementType::Int64, InputFeed::Positions, {"new"});
    add("visible", ElementType::Int64, InputFeed::VisibleKeys, {"batch", "total"});
    add("fixed", ElementType::Float, InputFeed::VisibleKeys, {"batch", int64_t{64}});
    add("hidden", ElementType::Bool, InputFeed::HiddenKeys, {"batch", "total"});
    add("additive", ElementType::Float16, InputFeed::AdditiveMask,
        {"batch", int64_t{1}, "new", "total"});
    add("causal", ElementType::Float, InputFeed::AdditiveMask, {"new", int64_t{64}});
    add("past", ElementType::Int64, InputFeed::VisibleKeys, {"batch", "past"});
    add("fresh", ElementType::Int64, InputFeed::VisibleKeys, {"batch", "new"});
    add("segments", ElementType::Int64, InputFeed::Segments, {"batch", "total"});
    add("rows", ElementType::Int64, InputFeed::BatchRows, {"batch"});
    add("other", ElementType::Float, InputFeed::Any, {"batch", int64_t{2}, int64_t{3}});
  }

  StepInputs kept() {
    return StepInputs(llvm::cantFail(DecoderPlan::create(inputs, {}, described)),
                      std::make_shared<Allocator>());
  }

  /// A step after `past` tokens. The second of three rows begins with two hidden positions.
  static DecoderStep stepAfter(int64_t past, int64_t tokens) {
    DecoderStep step;
    step.pastLength = past;
    for (int64_t row = 0; row < 3; ++row) {
      step.tokens.emplace_back();
      step.visible.emplace_back(static_cast<size_t>(past + tokens), 1);
      for (int64_t i = 0; i < tokens; ++i)
        step.tokens.back().push_back(100 * row + past + i);
    }
    for (int64_t position = 0; position < std::min<int64_t>(2, past + tokens); ++position)
      step.visible[1][static_cast<size_t>(position)] = 0;
    return step;
  }

  static HiddenPositions hidden() {
    HiddenPositions positions;
    positions.hide(1, 0);
    positions.hide(1, 1);
    return positions;
  }

  void expectSameAsFresh(StepInputs& fed, int64_t past, int64_t tokens) {
    const DecoderStep step = stepAfter(past, tokens);
    llvm::cantFail(fed.prepare(step, hidden()));
    const auto fresh =
        llvm::cantFail(decoderInputs(inputs, step, std::make_shared<Allocator>(), described));
    ASSERT_EQ(fresh.size(), fed.tensors().size());
    for (size_t i = 0; i < fresh.size(); ++i) {
      const TensorView& expected = fresh[i].tensor.view;
      const TensorView& found = fed.tensors()[i].tensor.view;
      ASSERT_EQ(expected.shape, found.shape) << fresh[i].name;
      ASSERT_TRUE(found.isContiguous());
      EXPECT_EQ(std::memcmp(expected.data, found.data, static_cast<size_t>(expected.byteSize())), 0)
          << fresh[i].name << " after " << past << " tokens";
    }
  }

  OpRegistry ops;
  Model model;
  std::vector<const Value*> inputs;
  std::vector<ManifestInput> described;
};

TEST_F(StepInputsTest, StepsThatContinue) {
  addEveryFeed();
  StepInputs fed = kept();
  expectSameAsFresh(fed, 0, 5);
  for (int64_t past = 5; past < 24; ++past)
    expectSameAsFresh(fed, past, 1);
  expectSameAsFresh(fed, 24, 3);
  expectSameAsFresh(fed, 27, 3);
  expectSameAsFresh(fed, 30, 1);
}

TEST_F(StepInputsTest, StepsThatGoBackOrSkip) {
  addEveryFeed();
  StepInputs fed = kept();
  expectSameAsFresh(fed, 0, 9);
  expectSameAsFresh(fed, 9, 1);
  expectSameAsFresh(fed, 4, 1); // cropped
  expectSameAsFresh(fed, 5, 1);
  expectSameAsFresh(fed, 2, 4);
  expectSameAsFresh(fed, 20, 1); // seeded
  expectSameAsFresh(fed, 0, 1);
}

TEST_F(StepInputsTest, MemoryIsKept) {
  addEveryFeed();
  StepInputs fed = kept();
  llvm::cantFail(fed.prepare(stepAfter(0, 4), hidden()));
  llvm::cantFail(fed.prepare(stepAfter(4, 12), hidden())); // makes room for as many again
  llvm::cantFail(fed.prepare(stepAfter(16, 1), hidden()));
  std::vector<const std::byte*> before;
  for (const NamedTensor& input : fed.tensors())
    before.push_back(input.tensor.view.data);
  for (int64_t past = 17; past < 31; ++past)
    llvm::cantFail(fed.prepare(stepAfter(past, 1), hidden()));
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(fed.tensors()[i].tensor.view.data, before[i]) << fed.tensors()[i].name;
  }
}

/// An input that cannot be made leaves the others such that the next step is right.
TEST_F(StepInputsTest, ErrorsAreOfOneStep) {
  add("visible", ElementType::Int64, InputFeed::VisibleKeys, {"batch", "total"});
  add("wide", ElementType::Int64, InputFeed::VisibleKeys, {"batch", int64_t{1} << 20, "new"});
  StepInputs fed = kept();
  expectSameAsFresh(fed, 0, 2);
  llvm::Error error = fed.prepare(stepAfter(2, 40), hidden());
  ASSERT_TRUE(static_cast<bool>(error));
  EXPECT_THAT(takeDiagnostic(std::move(error)).message, testing::HasSubstr("too large"));
  expectSameAsFresh(fed, 2, 1);
}

TEST(HiddenPositionsTest, CountsThoseBefore) {
  HiddenPositions positions;
  for (int64_t position : {3, 4, 9})
    positions.hide(1, position);
  EXPECT_FALSE(positions.contain(0, 3));
  EXPECT_TRUE(positions.contain(1, 9));
  EXPECT_FALSE(positions.contain(1, 5));
  EXPECT_FALSE(positions.contain(7, 3));
  EXPECT_EQ(positions.countBefore(1, 4), 1);
  EXPECT_EQ(positions.countBefore(1, 100), 3);
  EXPECT_EQ(positions.countBefore(0, 100), 0);
}

} // namespace
} // namespace kvopt
