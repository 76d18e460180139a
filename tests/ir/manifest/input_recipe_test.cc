// What users say that inputs are to be fed.
#include "ir/manifest/input_recipe.h"

#include "support/diagnostic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

using Kind = InputRecipe::Kind;
using testing::HasSubstr;

InputRecipe parsed(const std::string& text) { return llvm::cantFail(parseInputRecipe(text)); }

std::string refusal(const std::string& text) {
  auto recipe = parseInputRecipe(text);
  return recipe ? "" : takeDiagnostic(recipe.takeError()).str();
}

TEST(InputRecipe, Words) {
  EXPECT_EQ(parsed("x=zeros").kind, Kind::Zeros);
  EXPECT_EQ(parsed("x=ones").kind, Kind::Ones);
  EXPECT_EQ(parsed("x=range").kind, Kind::Range);
  EXPECT_EQ(parsed("x=random").kind, Kind::Random);
  EXPECT_EQ(parsed("x=past_length").kind, Kind::Length);
  EXPECT_EQ(parsed("x=past_length").length, LengthFeed::PastLength);
  EXPECT_EQ(parsed("x=total_length_minus_one").length, LengthFeed::TotalLengthMinusOne);
  EXPECT_THAT(refusal("x=block_table"), HasSubstr("neither a number nor a known word"));
  const InputRecipe mask = parsed("a=b=additive_mask@batch,1,new,total");
  EXPECT_EQ(mask.input, "a=b");
  EXPECT_EQ(mask.kind, Kind::Feed);
  EXPECT_EQ(mask.feed, InputFeed::AdditiveMask);
  ASSERT_TRUE(mask.hasShape);
  EXPECT_EQ(mask.shape, (std::vector<ManifestExtent>{"batch", int64_t{1}, "new", "total"}));
  EXPECT_FALSE(parsed("x=zeros").hasShape);
  EXPECT_TRUE(parsed("x=zeros@").hasShape); // a scalar
  EXPECT_TRUE(parsed("x=zeros@").shape.empty());
}

TEST(InputRecipe, Numbers) {
  const InputRecipe recipe = parsed("x=1,-2.5,3e2@past");
  EXPECT_EQ(recipe.kind, Kind::Numbers);
  EXPECT_EQ(recipe.numbers, (std::vector<double>{1, -2.5, 300}));
}

TEST(InputRecipe, Refuses) {
  EXPECT_THAT(refusal("x"), HasSubstr("'x' is not NAME=VALUE"));
  EXPECT_THAT(refusal("=1"), HasSubstr("not NAME=VALUE"));
  EXPECT_THAT(refusal("x=many"), HasSubstr("'many' is neither a number nor a known word"));
  EXPECT_THAT(refusal("x=any"), HasSubstr("'any'"));
  EXPECT_THAT(refusal("x="), HasSubstr("neither a number"));
  EXPECT_THAT(refusal("x=1,,2"), HasSubstr("neither a number"));
  for (const char* text : {"x=nan", "x=inf", "x=-inf", "x=1e400"})
    EXPECT_NE(refusal(text), "") << text;
  EXPECT_THAT(refusal("x=1@rows"), HasSubstr("'rows' is not an extent"));
  EXPECT_THAT(refusal("x=1@-1"), HasSubstr("not an extent"));
}

} // namespace
} // namespace kvopt
