// Near misses: one per rule and root, ranked.
#include "passes/pattern/explain.h"

#include <gtest/gtest.h>

#include <set>

namespace kvopt {
using namespace pattern;

namespace {

NearMiss made(const char* rule, const char* root, unsigned matched, const char* expected = "") {
  NearMiss miss;
  miss.rule = rule;
  miss.root = root;
  miss.matched = matched;
  miss.failure.expected = expected;
  miss.isSet = true;
  return miss;
}

TEST(NearMissList, KeepsTheFurthestOfARuleAtARoot) {
  NearMissList list;
  list.add(made("r", "n", 3, "first"));
  list.add(made("r", "n", 2, "less"));
  ASSERT_EQ(list.ranked().size(), 1u);
  EXPECT_EQ(list.ranked()[0].failure.expected, "first");
  list.add(made("r", "n", 3, "as far, and newer"));
  EXPECT_EQ(list.ranked()[0].failure.expected, "as far, and newer");
  list.add(made("r", "n", 5, "further"));
  ASSERT_EQ(list.ranked().size(), 1u);
  EXPECT_EQ(list.ranked()[0].failure.expected, "further");
}

TEST(NearMissList, RanksTheFurthestFirstAndKeepsTheOrderOfEquals) {
  NearMissList list;
  list.add(made("r", "a", 1));
  list.add(made("r", "b", 4));
  list.add(made("s", "a", 1));
  list.add(made("s", "c", 2));
  std::vector<std::string> order;
  for (const NearMiss& miss : list.ranked())
    order.push_back(miss.rule + miss.root);
  EXPECT_EQ(order, (std::vector<std::string>{"rb", "sc", "ra", "sa"}));
}

TEST(NearMissList, LooksUpAndForgetsByRoot) {
  NearMissList list;
  list.add(made("r", "a", 1));
  list.add(made("s", "a", 2));
  list.add(made("s", "b", 3));
  ASSERT_NE(list.furthestAt("a"), nullptr);
  EXPECT_EQ(list.furthestAt("a")->rule, "s");
  EXPECT_EQ(list.furthestAt("z"), nullptr);
  list.forget("a");
  EXPECT_EQ(list.furthestAt("a"), nullptr);
  EXPECT_EQ(list.ranked().size(), 1u);
}

TEST(ReasonTable, EveryCodeHasItsOwnNameAndAMeaning) {
  std::set<std::string> names;
  for (size_t i = 0; i < reasonTable().size(); ++i) {
    const ReasonInfo& info = reasonTable()[i];
    EXPECT_EQ(static_cast<size_t>(info.code), i) << info.name;
    EXPECT_EQ(reasonName(info.code), info.name);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_STRNE(info.meaning, "") << info.name;
  }
  EXPECT_EQ(static_cast<size_t>(ReasonCode::EvaluatedOtherwise) + 1, reasonTable().size());
}

TEST(MatchFailure, LeavesOutWhatIsEmpty) {
  EXPECT_EQ((MatchFailure{ReasonCode::CacheEscapes, "", "", "", ""}).str(), "cache-escapes");
  EXPECT_EQ((MatchFailure{ReasonCode::DynamicRank, "n", "", "none", ""}).str(),
            "dynamic-rank at 'n', found none");
}

} // namespace
} // namespace kvopt
