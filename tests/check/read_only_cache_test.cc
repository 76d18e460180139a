// Caches that a model only reads.
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

TEST(ReadOnlyCache, IsTheSameWithoutAManifest) {
  auto model =
      read(edited(edited(grown, "float[B, 1, P, 8] past_value)",
                         "float[B, 1, P, 8] past_value, float[B, 1, E, 8] encoder_key)"),
                  "attended = MatMul (weights, present_value)",
                  "own = MatMul (weights, present_value)\n  sum = ReduceSum <keepdims = 1> "
                  "(encoder_key)\n  attended = Add (own, sum)"));
  ASSERT_TRUE(model);
  ir::Manifest first = growing();
  const ir::Manifest second = first;
  ir::ManifestCache cache = first.caches.front();
  cache.past = "encoder_key";
  cache.present = "";
  cache.storage = ir::ReadOnlyCache{};
  cache.shape[2] = std::string("E");
  first.caches.push_back(cache);
  Feeding feeding({*model, first}, {*model, second});
  const ir::Value& input = *model->graph().findValue("encoder_key");
  const CacheInput* before = feeding.cacheInput(false, input);
  const CacheInput* after = feeding.cacheInput(true, input);
  ASSERT_TRUE(before && after);
  EXPECT_EQ(before->form, after->form);
  EXPECT_EQ(feeding.cachePlaces(*before, {1, 2, 1})->integers,
            feeding.cachePlaces(*after, {1, 2, 1})->integers);
}

} // namespace
} // namespace kvopt::check
