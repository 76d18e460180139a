// Misspelled words find the word that was meant.
#include "support/nearest_word.h"

#include <gtest/gtest.h>
#include <vector>

namespace kvopt {
namespace {

TEST(NearestWord, IsAtMostAThirdAway) {
  const std::vector<std::string> known{"ring", "blocks", "bfloat16"};
  EXPECT_EQ(nearestWord("rink", known), "ring");
  EXPECT_EQ(nearestWord("block", known), "blocks");
  EXPECT_EQ(nearestWord("float16", known), "bfloat16");
  EXPECT_EQ(nearestWord("paged", known), "");
}

TEST(NearestWord, EndsAMessage) {
  const std::vector<std::string> known{"ring", "blocks"};
  EXPECT_EQ(didYouMean("rink", known), "; did you mean 'ring'?");
  EXPECT_EQ(didYouMean("paged", known), "");
}

} // namespace
} // namespace kvopt
