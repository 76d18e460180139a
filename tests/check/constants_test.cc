// Which floating-point numbers are one number.
#include "check/arithmetic/constants.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvopt::check {
namespace {

TEST(CheckConstants, RecognizesFractionsAndRoots) {
  const Field field(0);
  Constants constants(field);
  EXPECT_TRUE(constants.constant(0.1f).isEqual(field.fraction(1, 10)));
  EXPECT_TRUE(constants.constant(-0.25).isEqual(field.negate(field.fraction(1, 4))));
  const Exact scale = constants.constant(float(1 / std::sqrt(24.0)));
  EXPECT_TRUE(field.multiply(scale, scale).isEqual(field.fraction(1, 24)));
  const Exact half = constants.constant(float(std::pow(24.0, -0.25)));
  EXPECT_TRUE(field.multiply(half, half).isEqual(scale));
}

TEST(CheckConstants, NumbersWithinRoundingAreOne) {
  const Field field(0);
  Constants constants(field);
  const float cosine = std::cos(3.7f);
  EXPECT_TRUE(constants.constant(cosine).isEqual(constants.constant(std::nextafter(cosine, 2.0f))));
  EXPECT_FALSE(constants.constant(cosine).isEqual(constants.constant(cosine + 1e-4f)));
}

TEST(CheckConstants, WeightsAreExact) {
  const Field field(0);
  Constants constants(field);
  const float weight = 0.1234567f;
  EXPECT_FALSE(constants.weight(weight).isEqual(constants.weight(std::nextafter(weight, 2.0f))));
  EXPECT_TRUE(constants.weight(0.75).isEqual(field.fraction(3, 4)));
}

TEST(CheckConstants, MasksHaveStatuses) {
  const Field field(0);
  Constants constants(field);
  EXPECT_EQ(constants.constant(-1e9).status, Status::Fill);
  EXPECT_EQ(constants.constant(-INFINITY).status, Status::MinusInfinity);
  EXPECT_EQ(constants.constant(INFINITY).status, Status::PlusInfinity);
  EXPECT_EQ(constants.constant(NAN).status, Status::NotANumber);
  EXPECT_EQ(constants.weight(-20000).status, Status::Number);
}

} // namespace
} // namespace kvopt::check
