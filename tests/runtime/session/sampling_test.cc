// Draws: their distribution, what top-k and top-p leave out, and that they depend on nothing else.
#include "runtime/session/sampling.h"

#include "support/diagnostic.h"
#include "support/half.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// How often each token is drawn at positions 0 … count-1.
std::map<int64_t, int> draws(const std::vector<float>& scores, const SamplingOptions& options,
                             int count) {
  std::map<int64_t, int> found;
  for (int position = 0; position < count; ++position)
    ++found[sampleToken(scores, options, {position, 0})];
  return found;
}

TEST(Sampling, PowersOfAHalf) {
  for (double x : {0.0, 1e-9, 0.125, 0.5, 0.75, 0.999999, 1.0, 3.7, 20.25, 39.9}) {
    auto units = static_cast<uint64_t>(x * 0x1p+32);
    double exact = 0x1p+40 * std::exp2(-x);
    EXPECT_NEAR(static_cast<double>(powerOfHalf(units)), exact, 512 * std::exp2(-std::floor(x)) + 1)
        << x;
  }
  EXPECT_EQ(powerOfHalf(0), uint64_t{1} << 40);
  EXPECT_EQ(powerOfHalf(uint64_t{40} << 32), 1u);
  EXPECT_EQ(powerOfHalf(uint64_t{41} << 32), 0u);
  EXPECT_EQ(powerOfHalf(UINT64_MAX), 0u);
}

TEST(Sampling, TemperatureZeroIsTheFirstLargestScore) {
  SamplingOptions greedy;
  greedy.seed = 99;
  EXPECT_EQ(sampleToken({1, 5, 5, -infinity}, greedy, {3, 0}), 1);
  EXPECT_EQ(sampleToken({-infinity, -infinity}, greedy, {0, 0}), 0);
}

TEST(Sampling, FollowsTheSoftmax) {
  const std::vector<float> scores = {0.5f, -1, 2, 1.25f, -infinity};
  for (double temperature : {0.5, 1.0, 2.0}) {
    SamplingOptions options;
    options.temperature = temperature;
    options.seed = 11;
    constexpr int count = 40000;
    std::map<int64_t, int> found = draws(scores, options, count);
    double mass = 0;
    for (float score : scores)
      mass += std::exp(score / temperature);
    EXPECT_EQ(found.count(4), 0u);
    for (int64_t token = 0; token < 4; ++token) {
      double p = std::exp(scores[static_cast<size_t>(token)] / temperature) / mass;
      // Five standard deviations.
      EXPECT_NEAR(found[token], count * p, 5 * std::sqrt(count * p * (1 - p))) << token;
    }
  }
}

TEST(Sampling, TopK) {
  SamplingOptions options;
  options.temperature = 1;
  options.topK = 2;
  std::map<int64_t, int> found = draws({1, 1, 3, 1}, options, 500);
  ASSERT_EQ(found.size(), 2u);
  // Of equal scores the lower index counts as more likely.
  EXPECT_TRUE(found.count(0) && found.count(2));
  options.topK = 1;
  EXPECT_EQ(draws({1, 1, 3, 1}, options, 100).size(), 1u);
  options.topK = 9;
  EXPECT_EQ(draws({1, 1, 3, 1}, options, 2000).size(), 4u);
}

TEST(Sampling, TopPKeepsTheFewestThatHaveTheShare) {
  // Probabilities 1/2, 1/4, 1/8, 1/8.
  auto log2 = static_cast<float>(std::log(2.0));
  const std::vector<float> scores = {-2 * log2, -3 * log2, -log2, -3 * log2};
  SamplingOptions options;
  options.temperature = 1;
  for (auto [share, kept] : {std::pair{0.4, 1u}, {0.6, 2u}, {0.8, 3u}, {0.95, 4u}, {1.0, 4u}}) {
    options.topP = share;
    EXPECT_EQ(draws(scores, options, 3000).size(), kept) << share;
  }
  // Within what top-k leaves: 2/3 and 1/3.
  options.topK = 2;
  options.topP = 0.6;
  EXPECT_EQ(draws(scores, options, 1000).size(), 1u);
}

TEST(Sampling, ADrawDependsOnSeedPositionAndRowOnly) {
  const std::vector<float> scores(64, 0.0f);
  SamplingOptions options;
  options.temperature = 1;
  options.seed = 5;
  std::vector<int64_t> known;
  for (int64_t position = 0; position < 8; ++position)
    known.push_back(sampleToken(scores, options, {position, 0}));
  // Written down: every machine has to draw these.
  EXPECT_EQ(known, (std::vector<int64_t>{0, 32, 52, 49, 56, 39, 3, 51}));
  EXPECT_EQ(sampleToken(scores, options, {3, 0}), known[3]);
  auto differs = [&](const SamplingOptions& other, SamplingPlace offset) {
    int different = 0;
    for (int64_t position = 0; position < 8; ++position)
      different += sampleToken(scores, other, {position + offset.position, offset.row}) !=
                           known[static_cast<size_t>(position)]
                       ? 1
                       : 0;
    return different;
  };
  EXPECT_EQ(differs(options, {0, 0}), 0);
  EXPECT_GT(differs(options, {0, 1}), 4);
  EXPECT_GT(differs(options, {1, 0}), 4);
  EXPECT_GT(differs(options, {int64_t{1} << 32, 0}), 4);
  SamplingOptions otherSeed = options;
  otherSeed.seed = 6;
  EXPECT_GT(differs(otherSeed, {0, 0}), 4);
  otherSeed.seed = options.seed + (uint64_t{1} << 32);
  EXPECT_GT(differs(otherSeed, {0, 0}), 4);
}

TEST(Sampling, ExtremeScores) {
  SamplingOptions options;
  options.temperature = 1;
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(draws({most, -most, 0}, options, 50).size(), 1u);
  EXPECT_EQ(draws({0, infinity, most}, options, 50).begin()->first, 1);
  EXPECT_EQ(draws({-infinity, -infinity}, options, 200).size(), 2u);
  options.temperature = 1e-300;
  EXPECT_EQ(draws({1, 2}, options, 50).begin()->first, 1);
  options.temperature = 1e300;
  EXPECT_EQ(draws({1, 2}, options, 200).size(), 2u);
}

TEST(Sampling, OptionsThatMakeNoSense) {
  auto isWrong = [](double temperature, int64_t topK, double topP) {
    llvm::Error error = checkSampling({temperature, topK, topP, 0});
    bool failed = static_cast<bool>(error);
    llvm::consumeError(std::move(error));
    return failed;
  };
  EXPECT_FALSE(isWrong(0, 0, 1));
  EXPECT_TRUE(isWrong(-1, 0, 1));
  EXPECT_TRUE(isWrong(NAN, 0, 1));
  EXPECT_TRUE(isWrong(infinity, 0, 1));
  EXPECT_TRUE(isWrong(1, -1, 1));
  EXPECT_TRUE(isWrong(1, 0, 0));
  EXPECT_TRUE(isWrong(1, 0, 1.5));
  EXPECT_TRUE(isWrong(1, 0, NAN));
}

TEST(Sampling, ReadsScoresOfEveryStorage) {
  std::vector<uint16_t> halves = {floatToF16(1), floatToF16(9), floatToF16(-3), floatToF16(9)};
  TensorView view = TensorView::contiguous(ElementType::Float16, {4},
                                           reinterpret_cast<std::byte*>(halves.data()));
  EXPECT_EQ(llvm::cantFail(readScores(view)), (std::vector<float>{1, 9, -3, 9}));
  view.shape = {2};
  view.strides = {2};
  EXPECT_EQ(llvm::cantFail(readScores(view)), (std::vector<float>{1, -3}));
  view.element = ElementType::BFloat16;
  halves = {floatToBf16(2), 0, floatToBf16(NAN), 0};
  auto refused = readScores(view);
  ASSERT_FALSE(static_cast<bool>(refused));
  EXPECT_EQ(takeDiagnostic(refused.takeError()).message, "the score of token 1 is not a number");
  view.shape = {0};
  EXPECT_FALSE(static_cast<bool>(llvm::expectedToOptional(readScores(view))));
}

} // namespace
} // namespace kvopt
