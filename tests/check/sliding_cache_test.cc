// Where sliding caches and rings have their rows.
#include "check/caches/sliding_cache.h"
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

/// Attention over the last three keys and values, which the model moves.
std::string slid() {
  std::string model = edited(grown, "float scale = {0.5}",
                             "float scale = {0.5}, int64[1] newest = {-3}, int64[1] end = "
                             "{9223372036854775807}, int64[1] rows_axis = {2}");
  for (const std::string role : {"key", "value"})
    model = edited(model, "present_" + role + " = Concat <axis = 2> (past_" + role + ", rows)",
                   "all_" + role + " = Concat <axis = 2> (past_" + role + ", rows)\n  present_" +
                       role + " = Slice (all_" + role + ", newest, end, rows_axis)");
  return model;
}

TEST(SlidingCache, AnotherSpellingIsNotDifferent) {
  // The same rows by Split: not known to be moved.
  std::string split = edited(slid(), "int64[1] rows_axis = {2}",
                             "int64[1] rows_axis = {2}, int64[2] sizes = {1, 3}");
  for (const std::string role : {"key", "value"})
    split = edited(split, "present_" + role + " = Slice (all_" + role + ", newest, end, rows_axis)",
                   "old_" + role + ", present_" + role + " = Split <axis = 2> (all_" + role +
                       ", sizes)");
  ir::Manifest manifest = growing();
  for (ir::ManifestCache& cache : manifest.caches) {
    cache.storage = ir::RingCache{};
    cache.shape[2] = int64_t(3);
  }
  auto first = read(slid()), second = read(split);
  ASSERT_TRUE(first && second);
  const ir::Manifest other = manifest;
  Feeding feeding({*first, manifest}, {*second, other});
  for (const Feeding::Pair& pair : feeding.pairs())
    EXPECT_EQ(pair.obstacle,
              "one model moves its rows, and whether the other one does is not known");
}

TEST(SlidingCache, TheNewestRowIsTheLast) {
  auto model = read(slid());
  auto other = read(grown);
  ASSERT_TRUE(model && other);
  ir::Manifest manifest = growing();
  for (ir::ManifestCache& cache : manifest.caches) {
    cache.storage = ir::RingCache{};
    cache.shape[2] = int64_t(3);
    EXPECT_TRUE(isSliding(model->graph(), cache));
    EXPECT_FALSE(isSliding(other->graph(), cache));
  }
  auto rowsOf = [&](const ir::Model& fed, int64_t past) {
    Feeding feeding({fed, manifest}, {fed, manifest});
    const CacheInput* input = feeding.cacheInput(false, *fed.graph().findValue("past_key"));
    const Ref places = input ? feeding.cachePlaces(*input, {1, past, 1}) : nullptr;
    std::vector<int64_t> rows;
    for (size_t i = 0; places && i < places->integers.size(); i += 8)
      rows.push_back(places->integers[i] < 0 ? -1 : places->integers[i] / 8);
    return rows;
  };
  EXPECT_EQ(rowsOf(*model, 2), std::vector<int64_t>({-1, 0, 1}));
  EXPECT_EQ(rowsOf(*model, 4), std::vector<int64_t>({1, 2, 3}));
  EXPECT_EQ(rowsOf(*other, 2), std::vector<int64_t>({0, 1, -1}));
  EXPECT_EQ(rowsOf(*other, 4), std::vector<int64_t>({3, 1, 2}));
}

TEST(SlidingCache, StepsThatReadUnwrittenRowsAreNoDifference) {
  // The first model sees three earlier rows, whether tokens wrote them or not.
  std::string kept = edited(grown, "float scale = {0.5}",
                            "float scale = {0.5}, int64[1] newest = {-4}, int64[1] end = "
                            "{9223372036854775807}, int64[1] rows_axis = {2}");
  kept = edited(kept, "turned = ", "keys = Slice (present_key, newest, end, rows_axis) turned = ");
  kept = edited(kept, "(present_key)", "(keys)");
  kept = edited(kept, "attended = MatMul (weights, present_value)",
                "values = Slice (present_value, newest, end, rows_axis) "
                "attended = MatMul (weights, values)");
  const std::string moved =
      edited(edited(slid(), "3, 2]> (present_key)", "3, 2]> (all_key)"),
             "MatMul (weights, present_value)", "MatMul (weights, all_value)");
  auto compared = [&](const std::string& other) {
    auto first = read(moved), second = read(other);
    if (!first || !second)
      return CheckReport();
    ir::Manifest before = growing(), after = growing();
    before.stepLimit = after.stepLimit = 1;
    for (ir::ManifestCache& cache : before.caches) {
      cache.storage = ir::RingCache{};
      cache.shape[2] = int64_t(3);
    }
    return checkModels({*first, before}, {*second, after});
  };
  const CheckReport same = compared(kept);
  EXPECT_EQ(same.verdict(), Verdict::Tested) << weakest(same);
  EXPECT_NE(weakest(same).find("no token wrote"), std::string::npos) << weakest(same);
  EXPECT_EQ(compared(edited(kept, "float scale = {0.5}", "float scale = {0.25}")).verdict(),
            Verdict::Different);
}

} // namespace
} // namespace kvopt::check
