// Masks of ONNX Runtime's attention operators: forms by shape, and their sums.
#include "runtime/simd/attention/padding_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace kvopt::simd {
namespace {

using testing::ElementsAre;

constexpr float lowest = std::numeric_limits<float>::lowest();

std::optional<PaddingForm> formOf(std::vector<int64_t> shape, bool hasRanges = true) {
  return paddingFormOf(shape, 2, 3, 7, hasRanges);
}

std::vector<float> numbersOf(const PaddingMask& mask) {
  std::vector<float> numbers(
      static_cast<size_t>(mask.batches * mask.heads * mask.rows * mask.keys) + 1, 77.0f);
  mask.write(numbers.data());
  EXPECT_EQ(numbers.back(), 77.0f) << "written past the mask";
  numbers.pop_back();
  return numbers;
}

/// A mask of two batch rows, one query row and three keys.
PaddingMask maskOf(PaddingForm form, const std::vector<int64_t>& visible) {
  PaddingMask mask;
  mask.form = form;
  mask.visible = visible.data();
  mask.batches = 2;
  mask.rows = 1;
  mask.keys = 3;
  mask.hidden = -5.0f;
  return mask;
}

TEST(PaddingMask, ShapesDetermineTheForm) {
  EXPECT_EQ(formOf({2}), PaddingForm::lengths);
  EXPECT_EQ(formOf({8}), PaddingForm::lengths);
  EXPECT_EQ(formOf({4}), PaddingForm::ranges);
  EXPECT_EQ(formOf({4}, false), std::nullopt);
  EXPECT_EQ(formOf({2, 7}), PaddingForm::keys);
  EXPECT_EQ(formOf({2, 3, 7}), PaddingForm::pairs);
  EXPECT_EQ(formOf({2, 3}), std::nullopt);
  EXPECT_EQ(formOf({}), std::nullopt);
}

TEST(PaddingMask, EachFormHidesItsKeys) {
  const std::vector<int64_t> lengths = {1, 3}, ranges = {2, 3, 1, 0}, keys = {0, 1, 2, -1, 0, 1};
  EXPECT_THAT(numbersOf(maskOf(PaddingForm::lengths, lengths)), ElementsAre(0, -5, -5, 0, 0, 0));
  EXPECT_THAT(numbersOf(maskOf(PaddingForm::ranges, ranges)), ElementsAre(-5, 0, -5, 0, 0, 0));
  EXPECT_THAT(numbersOf(maskOf(PaddingForm::keys, keys)), ElementsAre(-5, 0, 0, -5, -5, 0));
  EXPECT_THAT(numbersOf(maskOf(PaddingForm::pairs, keys)), ElementsAre(-5, 0, 0, -5, -5, 0));
}

TEST(PaddingMask, TheLastRowSeesAllKeys) {
  PaddingMask mask;
  mask.rows = 2;
  mask.keys = 4;
  mask.pastRows = 1;
  mask.causal = true;
  EXPECT_THAT(numbersOf(mask), ElementsAre(0, 0, lowest, lowest, 0, 0, 0, 0));
}

TEST(PaddingMask, ABiasOfOneBatchRowIsRepeated) {
  const std::vector<int64_t> lengths = {1, 3};
  const std::vector<float> bias = {1, 2, 3, 10, 20, 30};
  PaddingMask mask = maskOf(PaddingForm::lengths, lengths);
  mask.heads = 2;
  mask.bias = bias.data();
  mask.biasStrides[1] = mask.biasStrides[2] = 3;
  mask.biasStrides[3] = 1;
  EXPECT_THAT(numbersOf(mask), ElementsAre(1, -3, -2, 10, 15, 25, 1, 2, 3, 10, 20, 30));
}

} // namespace
} // namespace kvopt::simd
