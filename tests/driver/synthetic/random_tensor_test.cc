// Random weights: the published sequence, one rounding for 16-bit types, pieces that fit together.
#include "driver/synthetic/random_tensor.h"

#include "support/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

std::vector<std::byte> bytesOf(const TensorData& tensor) {
  auto bytes = llvm::cantFail(tensor.bytes());
  return {bytes.begin(), bytes.end()};
}

template <class T> std::vector<T> valuesOf(const TensorData& tensor) {
  const std::vector<std::byte> bytes = bytesOf(tensor);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(RandomTensor, CodesAreTheSplitMixSequence) {
  // The first outputs for the seed 1234567, as Rosetta Code and many implementations list them.
  const TensorRef codes = randomCodes({3, 8}, 1234567);
  EXPECT_EQ(
      valuesOf<uint64_t>(*codes),
      (std::vector<uint64_t>{6457827717110365317u, 3203168211198807973u, 9817491932198370423u}));
}

TEST(RandomTensor, SixteenBitNumbersAreThoseOfFloatRounded) {
  const auto exact = valuesOf<float>(*randomNumbers(ElementType::Float, {7, 129}, 5, 0.25, 2.0));
  const auto f16 = valuesOf<uint16_t>(*randomNumbers(ElementType::Float16, {7, 129}, 5, 0.25, 2.0));
  const auto bf16 =
      valuesOf<uint16_t>(*randomNumbers(ElementType::BFloat16, {7, 129}, 5, 0.25, 2.0));
  ASSERT_EQ(exact.size(), 903u);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(f16[i], floatToF16(exact[i]));
    EXPECT_EQ(bf16[i], floatToBf16(exact[i]));
  }
}

TEST(RandomTensor, HaveTheMeanAndDeviationAskedFor) {
  const auto values = valuesOf<float>(*randomNumbers(ElementType::Float, {1 << 16}, 9, 1.0, 0.5));
  double sum = 0;
  double squares = 0;
  for (float value : values) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
    EXPECT_LT(std::abs(value - 1.0f), 0.5f * 1.7321f);
  }
  const double mean = sum / static_cast<double>(values.size());
  EXPECT_NEAR(mean, 1.0, 0.01);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(values.size()) - mean * mean), 0.5, 0.01);
}

TEST(RandomTensor, StreamsTheSameBytesInPieces) {
  for (const TensorRef& tensor :
       {randomNumbers(ElementType::Float, {1000003}, 1, 0, 1),
        randomNumbers(ElementType::Float16, {3, 1000001}, 2, 0, 1), randomCodes({5000011}, 3),
        randomNumbers(ElementType::Float, {0, 4}, 4, 0, 1)}) {
    std::vector<std::byte> streamed;
    size_t pieces = 0;
    llvm::cantFail(tensor->stream([&](std::span<const std::byte> piece) {
      streamed.insert(streamed.end(), piece.begin(), piece.end());
      ++pieces;
      return llvm::Error::success();
    }));
    EXPECT_EQ(streamed, bytesOf(*tensor));
    EXPECT_EQ(pieces > 1, streamed.size() > 1);
  }
}

TEST(RandomTensor, KeysOfNamesAndSeedsAreApart) {
  EXPECT_NE(keyOf(0, "a"), keyOf(0, "b"));
  EXPECT_NE(keyOf(0, "a"), keyOf(1, "a"));
  EXPECT_EQ(keyOf(7, "layers.0"), keyOf(7, "layers.0"));
}

} // namespace
} // namespace kvopt
