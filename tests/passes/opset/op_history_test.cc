// The table of operators, and that its changes and the adapters are the same set.
#include "passes/opset/op_history.h"

#include "passes/opset/opset_adapter.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace opset;

namespace {

TEST(OpHistoryTest, IsSortedAndEndsAtTheNewestKnownOpset) {
  const std::vector<OpHistory> all = opHistories();
  ASSERT_GT(all.size(), 100u);
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].name.str());
    if (i != 0) {
      EXPECT_LT(all[i - 1].name.str(), all[i].name.str());
    }
    ASSERT_FALSE(all[i].versions.empty());
    EXPECT_FALSE(all[i].versions.front().isChanged) << "a change from a version that is not known";
    int64_t before = 0;
    for (const OpVersion& version : all[i].versions) {
      EXPECT_GT(version.since, before);
      before = version.since;
    }
    EXPECT_LE(before, newestKnownOpset);
  }
}

TEST(OpHistoryTest, EveryChangeHasItsAdapterAndEveryAdapterItsChange) {
  OpsetAdapterRegistry adapters;
  registerAll(adapters);
  size_t changes = 0;
  for (const OpHistory& history : opHistories())
    for (const OpVersion& version : history.versions)
      if (version.isChanged) {
        ++changes;
        EXPECT_NE(adapters.find(history.name, version.since), nullptr)
            << history.name.str() << " " << version.since;
      }
  EXPECT_EQ(changes, adapters.all().size());
}

TEST(OpHistoryTest, FindsTheVersionThatAnImportSelects) {
  const std::optional<OpHistory> softmax = findHistory("Softmax");
  ASSERT_TRUE(softmax);
  EXPECT_EQ(softmax->versionAt(7)->since, 1);
  EXPECT_EQ(softmax->versionAt(12)->since, 11);
  EXPECT_EQ(softmax->versionAt(24)->since, 13);
  EXPECT_TRUE(softmax->versionAt(24)->isChanged);
  EXPECT_EQ(findHistory("Scan")->versionAt(8), nullptr);
  EXPECT_FALSE(findHistory("NonMaxSuppression"));
  EXPECT_FALSE(findHistory("Zzz"));
  EXPECT_FALSE(findHistory(""));
}

} // namespace
} // namespace kvopt
