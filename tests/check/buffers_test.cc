// Buffers: fixed rows of which a length says how many are valid, and the shapes in manifests.
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

TEST(CheckBuffers, RowsThatNoTokenWroteAreArbitrary) {
  // Zeros in such rows would hide that the second model sums all rows of the buffer.
  const std::string header = "<ir_version: 8, opset_import: [\"\" : 17]>\n";
  auto first = read(header + R"(g (float[B, S, 8] inputs_embeds, float[B, 1, P, 8] past_key)
  => (float[B, 1, 8] sum, float[B, 1, T, 8] present_key) <int64[1] one = {1}, int64[1] two = {2}> {
  rows = Unsqueeze (inputs_embeds, one)
  present_key = Concat <axis = 2> (past_key, rows)
  sum = ReduceSum <keepdims = 0> (present_key, two)
})");
  auto second = read(header + R"(g (float[B, S, 8] inputs_embeds, float[B, 1, C, 8] past_key,
   int64 past_length) => (float[B, 1, 8] sum, float[B, 1, C, 8] present_key)
<int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}, int64[1] all = {-1}> {
  rows = Unsqueeze (inputs_embeds, one)
  start = Reshape (past_length, all)
  shape = Shape (rows)
  count = Gather (shape, two)
  end = Add (start, count)
  extents = Shape (past_key)
  capacity = Gather (extents, two)
  head = Slice (past_key, zero, start, two)
  tail = Slice (past_key, end, capacity, two)
  present_key = Concat <axis = 2> (head, rows, tail)
  sum = ReduceSum <keepdims = 0> (present_key, two)
})");
  ASSERT_TRUE(first && second);
  ir::Manifest before = growing();
  before.caches.pop_back();
  ir::Manifest after = before;
  after.contract = ir::CacheUpdate::InPlace;
  after.caches[0].storage = ir::BufferCache{};
  after.caches[0].shape[2] = std::string("C");
  after.lengths.push_back({"past_length", ir::ElementType::Int64, {}, ir::LengthFeed::PastLength});
  EXPECT_EQ(checkModels({*first, before}, {*second, after}).verdict(), Verdict::Different);
}

TEST(CheckBuffers, ManifestsThatNoStepFitsDecideNothing) {
  // The growing cache has all its rows before the step, and the buffer has room for no more.
  auto first = read(grown), second = read(buffered);
  ASSERT_TRUE(first && second);
  ir::Manifest after = inBuffers(ir::LengthFeed::PastLength);
  after.caches[0].storage = growing().caches[0].storage;
  for (ir::ManifestCache& cache : after.caches)
    cache.shape[2] = int64_t(5);
  EXPECT_EQ(checkModels({*first, growing()}, {*second, after}).verdict(), Verdict::Skipped);
}

TEST(CheckBuffers, ShapesThatContradictTheModelAreNotDecided) {
  auto first = read(grown), second = read(buffered);
  ASSERT_TRUE(first && second);
  const ir::Manifest right = inBuffers(ir::LengthFeed::PastLength);
  auto verdictOf = [&](void (*edit)(ir::ManifestCache&)) {
    ir::Manifest manifest = right;
    edit(manifest.caches[0]);
    return checkModels({*first, growing()}, {*second, manifest}).verdict();
  };
  EXPECT_EQ(verdictOf([](ir::ManifestCache&) {}), Verdict::ProvedReduced);
  // Other names are free, but not those of other axes; a static cache has a fixed number of rows.
  EXPECT_EQ(verdictOf([](ir::ManifestCache& cache) { cache.shape[0] = std::string("N"); }),
            Verdict::ProvedReduced);
  EXPECT_EQ(verdictOf([](ir::ManifestCache& cache) { std::swap(cache.shape[0], cache.shape[2]); }),
            Verdict::Skipped);
  EXPECT_EQ(verdictOf([](ir::ManifestCache& cache) { cache.storage = ir::StaticCache(); }),
            Verdict::Skipped);
}

TEST(CheckBuffers, ABufferHoldsTheRowsOfAGrowingCache) {
  auto first = read(grown);
  const ir::Manifest before = growing();
  auto verdictOf = [&](const std::string& text, ir::LengthFeed feed) {
    auto second = read(text);
    if (!first || !second)
      return Verdict::Skipped;
    return checkModels({*first, before}, {*second, inBuffers(feed)}).verdict();
  };
  EXPECT_EQ(verdictOf(buffered, ir::LengthFeed::PastLength), Verdict::ProvedReduced);
  // A wrong role in the manifest, and rows that are read beyond the valid ones.
  EXPECT_EQ(verdictOf(buffered, ir::LengthFeed::TotalLength), Verdict::Different);
  EXPECT_EQ(verdictOf(edited(buffered, "values = Slice (present_value, zero, end, two)",
                             "values = Slice (past_value, zero, end, two)"),
                      ir::LengthFeed::PastLength),
            Verdict::Different);
  EXPECT_EQ(verdictOf(edited(buffered, "keys = Slice (present_key, zero, end, two)",
                             "next = Add (end, one) keys = Slice (present_key, zero, next, two)"),
                      ir::LengthFeed::PastLength),
            Verdict::Different);
}

} // namespace
} // namespace kvopt::check
