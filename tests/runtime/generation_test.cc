// Scores, the most likely token, and greedy decoding of a counting model.
#include "runtime/generation.h"

#include "ir/diagnostic.h"
#include "ir/half.h"
#include "tests/runtime/counting_model.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
namespace {

Tensor scores(Extents shape, const std::vector<float>& values) {
  return llvm::cantFail(Tensor::of<float>(std::make_shared<Allocator>(), ElementType::Float, shape,
                                          std::span<const float>(values)));
}

template <class T> std::string errorOf(llvm::Expected<T> value) {
  return value ? "" : takeDiagnostic(value.takeError()).message;
}

TEST(Generation, TheFirstLargestScoreOfTheLastToken) {
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

TEST(Generation, OneOutputHoldsTheScores) {
  StepResult result;
  EXPECT_NE(errorOf(findLogits(result)), "");
  result.outputs.push_back({"other", scores({1, 2}, {0, 0})});
  EXPECT_NE(errorOf(findLogits(result)), "");
  result.outputs.push_back({"scores", scores({1, 1, 2}, {0, 0})});
  EXPECT_EQ(llvm::cantFail(findLogits(result)), &result.outputs[1].tensor);
  result.outputs.push_back({"more", scores({1, 1, 2}, {0, 0})});
  EXPECT_THAT(errorOf(findLogits(result)), testing::HasSubstr("several outputs"));
}

TEST(Generation, CountsOn) {
  const test::CountingModel counting;
  auto session = counting.session();
  const GenerationResult result = llvm::cantFail(generateGreedily(*session, {2, 3}, 5));
  EXPECT_EQ(result.tokens, (std::vector<int64_t>{4, 5, 6, 7, 0}));
  EXPECT_EQ(result.promptTokens, 2);
  EXPECT_EQ(result.decodeSteps, 4);
  EXPECT_EQ(session->length(), 6);
}

} // namespace
} // namespace kvopt
