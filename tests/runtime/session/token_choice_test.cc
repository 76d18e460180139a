// Scores, and the most likely token.
#include "runtime/session/token_choice.h"

#include "support/diagnostic.h"
#include "support/half.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

Tensor scores(Extents shape, const std::vector<float>& values) {
  return llvm::cantFail(Tensor::of<float>(std::make_shared<Allocator>(), ElementType::Float, shape,
                                          std::span<const float>(values)));
}

template <class T> std::string errorOf(llvm::Expected<T> value) {
  return value ? "" : takeDiagnostic(value.takeError()).message;
}

TEST(TokenChoice, TheFirstLargestScoreOfTheLastToken) {
  const Tensor logits = scores({2, 2, 3}, {9, 0, 0, 1, 5, 5, 0, 0, 9, -3, -2, -4});
  EXPECT_EQ(llvm::cantFail(greedyToken(logits, 0)), 1);
  EXPECT_EQ(llvm::cantFail(greedyToken(logits, 1)), 1);
  EXPECT_EQ(errorOf(greedyToken(logits, 2)), "there are no scores of batch row 2");
  EXPECT_EQ(errorOf(greedyToken(scores({1, 0, 3}, {}), 0)), "there are no scores of batch row 0");
  EXPECT_EQ(errorOf(greedyToken(scores({1, 1, 2}, {0, NAN}), 0)),
            "the score of token 1 is not a number");
  const std::vector<uint16_t> halves = {floatToF16(1), floatToF16(3), floatToF16(2)};
  const Tensor half =
      llvm::cantFail(Tensor::of<uint16_t>(std::make_shared<Allocator>(), ElementType::Float16,
                                          {1, 1, 3}, std::span<const uint16_t>(halves)));
  EXPECT_EQ(llvm::cantFail(greedyToken(half, 0)), 1);
}

TEST(TokenChoice, OneOutputHoldsTheScores) {
  StepResult result;
  EXPECT_NE(errorOf(findLogits(result)), "");
  result.outputs.push_back({"other", scores({1, 2}, {0, 0})});
  EXPECT_NE(errorOf(findLogits(result)), "");
  result.outputs.push_back({"scores", scores({1, 1, 2}, {0, 0})});
  EXPECT_EQ(llvm::cantFail(findLogits(result)), &result.outputs[1].tensor);
  result.outputs.push_back({"more", scores({1, 1, 2}, {0, 0})});
  EXPECT_THAT(errorOf(findLogits(result)), testing::HasSubstr("several outputs"));
}

TEST(TokenChoice, ScoresOfTheLastToken) {
  const Tensor logits = scores({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(llvm::cantFail(readScores(llvm::cantFail(lastScores(logits, 1)))),
            (std::vector<float>{7, 8}));
  EXPECT_EQ(errorOf(lastScores(logits, 2)), "there are no scores of batch row 2");
  EXPECT_EQ(errorOf(lastScores(logits, -1)), "there are no scores of batch row -1");
}

/// The storage that a chooser keeps changes nothing.
TEST(TokenChoice, AChooserDrawsAsSampleTokenDoes) {
  const Tensor logits = scores({1, 2, 4}, {0, 1, 2, 3, 1, 4, 2, 3});
  SamplingOptions options;
  options.temperature = 1;
  options.topK = 3;
  TokenChooser chooser(options);
  for (int64_t before : {0, 1})
    for (int64_t position = 0; position < 20; ++position) {
      const auto row = llvm::cantFail(readScores(llvm::cantFail(lastScores(logits, 0, before))));
      EXPECT_EQ(llvm::cantFail(chooser.choose(logits, {position, 0}, before)),
                sampleToken(row, options, {position, 0}));
    }
}

} // namespace
} // namespace kvopt
