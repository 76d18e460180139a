// Arithmetic of sums of functions of a position.
#include "passes/analysis/rotation/position_form.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvopt {
using namespace analysis;

namespace {

using Kind = PositionFunction::Kind;

PositionForm lineOf(double slope, double offset) {
  PositionFunction position;
  position.kind = Kind::Position;
  PositionForm line = PositionForm::function(position, slope);
  line.add(PositionForm::number(offset));
  return line;
}

TEST(PositionForm, SumsAndProducts) {
  PositionForm sum = PositionForm::raw(3);
  sum.add(PositionForm::raw(3), 2);
  ASSERT_EQ(sum.terms().size(), 1U);
  EXPECT_EQ(sum.terms().front().factor, 3);
  sum.add(PositionForm::raw(3), -3);
  EXPECT_TRUE(sum.terms().empty());
  EXPECT_EQ(sum.asNumber(), 0);
  const auto wave = PositionForm::wave(lineOf(0.5, 2), Kind::Cosine);
  ASSERT_TRUE(wave);
  EXPECT_FALSE(wave->isPositionFree());
  const auto product = PositionForm::product(*wave, PositionForm::raw(1));
  ASSERT_TRUE(product);
  EXPECT_EQ(product->terms().front().function.slope, 0.5);
  EXPECT_EQ(product->terms().front().function.offset, 2);
  EXPECT_EQ(product->terms().front().atom, 1);
  // Neither the square of a wave nor the product of raw elements is such a sum.
  EXPECT_FALSE(PositionForm::product(*wave, *wave));
  EXPECT_FALSE(PositionForm::product(*product, PositionForm::raw(2)));
  EXPECT_FALSE(PositionForm::product(PositionForm::raw(2), PositionForm::raw(2)));
  EXPECT_TRUE(PositionForm::product(*product, PositionForm::number(2)));
}

TEST(PositionForm, WavesAreOfLines) {
  const auto fixed = PositionForm::wave(PositionForm::number(0.25), Kind::Sine);
  ASSERT_TRUE(fixed && fixed->asNumber());
  EXPECT_EQ(*fixed->asNumber(), std::sin(0.25));
  EXPECT_FALSE(PositionForm::wave(PositionForm::raw(0), Kind::Sine));
  const auto line = lineOf(3, -1).asLine();
  ASSERT_TRUE(line);
  EXPECT_EQ(line->slope, 3);
  EXPECT_EQ(line->offset, -1);
  EXPECT_FALSE(PositionForm::number(4).asLine());
  PositionForm two = lineOf(1, 0);
  PositionFunction other;
  other.kind = Kind::Position;
  other.source = 1;
  two.add(PositionForm::function(other));
  EXPECT_FALSE(two.asLine());
  EXPECT_FALSE(PositionForm::wave(two, Kind::Cosine));
}

} // namespace
} // namespace kvopt
