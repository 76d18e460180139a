// What decoding asks for once it is under way: nothing. Counted at the allocator and at the heap.
#include "driver/synthetic/decoder.h"
#include "ir/text/reader.h"
#include "tests/allocation/counted_session.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace runtime;

namespace {

/// Steps until whatever is sized, placed and started at first use is there. What depends on the
/// past (masks, where a model computes them) has room for twice the first decoding step's then.
constexpr int64_t prompt = 66;
constexpr int64_t settling = 20;
constexpr int64_t counted = 36;

using DecodeTest = ShippedModelTest;

/// Three numbers of batch rows on one thread and on several.
void expectNoRequests(const DrivenModel& inPlace, const KernelRegistry& kernels) {
  for (unsigned threads : {1u, 3u})
    for (int64_t batch : {1, 2, 8}) {
      SessionOptions options;
      options.mode = SessionOptions::Mode::Stateful;
      options.capacity = 128;
      options.batch = batch;
      options.threads = threads;
      CountedSession feeder(inPlace, kernels, options);
      feeder.step(prompt);
      feeder.decode(settling);
      Requests requests = feeder.decode(counted);
      EXPECT_EQ(requests.allocator, 0u) << threads << " threads, batch " << batch;
      EXPECT_EQ(requests.heap, 0u) << threads << " threads, batch " << batch;
      EXPECT_EQ(feeder.last().allocations, 0);
    }
}

TEST_P(DecodeTest, InPlaceAllocatesNothing) {
  expectNoRequests(rewritten(path(), toolkit), toolkit.runner->kernels());
}

TEST_P(DecodeTest, QuantizedCachesAllocateNothing) {
  expectNoRequests(rewritten(path(), toolkit, "", "int8"), toolkit.runner->kernels());
}

/// As long as no block is full.
TEST_P(DecodeTest, BlocksAllocateNothing) {
  static_assert(prompt + settling + counted <= 128);
  expectNoRequests(rewritten(path(), toolkit, "capacity=256", "blocks:128"),
                   toolkit.runner->kernels());
}

/// A decoder with lengths instead of a mask.
TEST(PagedDecodeTest, PoolsAllocateNothing) {
  const Toolkit toolkit;
  const TemporaryFolder folder;
  DecoderSpec spec;
  spec.spelling = DecoderSpelling::GroupQueryAttention;
  spec.headWidth = 8;
  spec.vocabulary = 32;
  const auto generated = generateDecoder(toolkit.ops, valueOrThrow(resolved(spec)));
  const std::string path = folder.path("model.onnx");
  successOrThrow(exportModel(*generated, path));
  expectNoRequests(rewritten(path, toolkit, "", "paged:16"), toolkit.runner->kernels());
}

/// Growing caches need memory when they outgrow what former ones left: a number of times that is
/// the logarithm of the length. A step that asks the allocator for nothing asks the heap for
/// nothing.
TEST_P(DecodeTest, GrowingCachesSeldomAllocate) {
  DrivenModel exported = asExported(path(), toolkit);
  CountedSession feeder(exported, toolkit.runner->kernels(), {});
  feeder.step(prompt);
  feeder.decode(settling);
  int64_t quiet = 0;
  for (int64_t i = 0; i < counted; ++i) {
    Requests requests = feeder.decode(1);
    quiet += requests.allocator == 0 ? 1 : 0;
    EXPECT_TRUE(requests.allocator != 0 || requests.heap == 0) << "step " << i;
  }
  EXPECT_GE(quiet, counted - 4);
}

INSTANTIATE_TEST_SUITE_P(, DecodeTest, shippedModels(), shippedModelName);

class DeepContextTest : public testing::Test {
protected:
  /// What a step at 128 and at 8192 tokens uses, neither of which may allocate.
  std::array<RunStatistics, 2> atBothDepths(const DrivenModel& inPlace) {
    SessionOptions options;
    options.capacity = 8400;
    options.threads = 2;
    CountedSession feeder(inPlace, toolkit.runner->kernels(), options);
    std::array<RunStatistics, 2> used;
    for (size_t depth = 0; depth < 2; ++depth) {
      feeder.fill(depth == 0 ? 128 : 8192);
      feeder.decode(settling);
      Requests requests = feeder.decode(8);
      EXPECT_EQ(requests.allocator, 0u);
      EXPECT_EQ(requests.heap, 0u);
      used[depth] = feeder.last();
    }
    EXPECT_GT(used[0].temporaryPeak(), 0);
    return used;
  }
  Toolkit toolkit;
};

/// Two layers that see the past through their caches only.
DrivenModel decoderWithoutMask(const OpRegistry& ops) {
  std::string text = R"(
<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
g (int64[B, S] input_ids, float[B, 2, C, 8] past_key_0, float[B, 2, C, 8] past_value_0,
   float[B, 2, C, 8] past_key_1, float[B, 2, C, 8] past_value_1, int64[1] past_length)
  => (float[B, S, 32] logits, float[B, 2, C, 8] present_key_0, float[B, 2, C, 8] present_value_0,
      float[B, 2, C, 8] present_key_1, float[B, 2, C, 8] present_value_1)
<float zero = {0}, float one = {1}, float many = {1024}, float half = {512},
 int64[2] wide = {32, 32}, int64[2] narrow = {32, 16}, int64[4] heads = {0, 0, 4, 8},
 int64[4] groups = {0, 0, 2, 8}, int64[3] joined = {0, 0, 32}>
{
  numbers = Range(zero, many, one)
  waves = Sin(numbers)
  table = Reshape(waves, wide)
  fewer = Range(zero, half, one)
  ripples = Cos(fewer)
  columns = Reshape(ripples, narrow)
  x0 = Gather(table, input_ids)
)";
  for (int layer = 0; layer < 2; ++layer)
    text += formatted(R"(
  q{0} = MatMul(x{0}, table)
  qs{0} = Reshape(q{0}, heads)
  query{0} = Transpose <perm = [0, 2, 1, 3]> (qs{0})
  k{0} = MatMul(x{0}, columns)
  ks{0} = Reshape(k{0}, groups)
  key{0} = Transpose <perm = [0, 2, 1, 3]> (ks{0})
  o{0}, present_key_{0}, present_value_{0} = ai.kvopt.InPlaceKvSdpa <scale = 0.35, causal = 1>
      (query{0}, key{0}, key{0}, past_key_{0}, past_value_{0}, past_length)
  ot{0} = Transpose <perm = [0, 2, 1, 3]> (o{0})
  x{1} = Reshape(ot{0}, joined)
)",
                      layer, layer + 1);
  text += "  logits = MatMul(x2, table)\n}\n";
  DrivenModel driven;
  driven.model = valueOrThrow(readText(text, ops));
  successOrThrow(inferShapes(driven.model->graph()));
  driven.manifest.contract = CacheUpdate::InPlace;
  driven.manifest.capacitySymbol = "C";
  for (int layer = 0; layer < 2; ++layer)
    for (const char* role : {"key", "value"}) {
      ManifestCache cache;
      cache.past = formatted("past_{}_{}", role, layer);
      cache.present = formatted("present_{}_{}", role, layer);
      cache.storage = BufferCache();
      cache.shape = {std::string("B"), int64_t{2}, std::string("C"), int64_t{8}};
      cache.sequenceAxis = 2;
      driven.manifest.caches.push_back(cache);
    }
  driven.manifest.lengths = {
      {"past_length", ElementType::Int64, {int64_t{1}}, LengthFeed::PastLength}};
  return driven;
}

TEST_F(DeepContextTest, TemporaryMemoryOfAStepDoesNotDependOnThePast) {
  auto used = atBothDepths(decoderWithoutMask(toolkit.ops));
  EXPECT_EQ(used[0].arenaBytes, used[1].arenaBytes);
  EXPECT_EQ(used[0].scratchBytes, used[1].scratchBytes);
  EXPECT_EQ(used[0].dynamicBytes, used[1].dynamicBytes);
  EXPECT_EQ(used[0].reservedBytes, used[1].reservedBytes);
  EXPECT_EQ(used[0].temporaryPeak(), used[1].temporaryPeak());
}

/// A decoder that is fed a mask of visible positions computes with tensors of that length, a few at
/// a time, and with nothing else that grows: no tensor has a row of the past for every head.
TEST_F(DeepContextTest, OnlyAMaskGrowsWithThePast) {
  DecoderSpec spec;
  spec.headWidth = 8;
  spec.vocabulary = 32;
  DrivenModel driven;
  driven.model = generateDecoder(toolkit.ops, valueOrThrow(resolved(spec)));
  PassContext context(toolkit.rules, toolkit.targets);
  PassManager manager(toolkit.passes, {});
  successOrThrow(
      manager.addPipeline(std::string(recoveryPipeline) + ",lower{to=kvopt},eliminate-dead-nodes"));
  successOrThrow(manager.run(*driven.model, context));
  driven.manifest = *context.manifest;
  auto used = atBothDepths(driven);
  // Of int64, as many as indices into the mask have, in classes of powers of two.
  constexpr int64_t maskTensors = 4;
  EXPECT_LE(used[1].temporaryPeak() - used[0].temporaryPeak(),
            2 * maskTensors * int64_t{sizeof(int64_t)} * (8192 - 128));
}

} // namespace
} // namespace kvopt
