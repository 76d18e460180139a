// What decoding asks for once it is under way: nothing. Counted at the allocator and at the heap.
#include "cli/generate/decoder.h"
#include "tests/allocation/heap_counter.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
namespace {

/// Requests within Session::step, at the allocator and at the heap (which the allocator's are
/// among).
struct Requests {
  uint64_t allocator = 0;
  uint64_t heap = 0;
};

/// Feeds a session through one StepResult.
class CountedSession {
public:
  CountedSession(const DrivenModel& driven, const KernelRegistry& kernels, SessionOptions options)
      : session(valueOrThrow(Session::create(*driven.model, kernels, driven.manifest, options))),
        vocabulary(valueOrThrow(vocabularyOf(driven.model->graph()))) {}

  void step(int64_t tokens) {
    DecoderStep input;
    input.pastLength = session->length();
    for (int64_t row = 0; row < session->batch(); ++row) {
      input.tokens.emplace_back();
      for (int64_t i = 0; i < tokens; ++i)
        input.tokens.back().push_back((input.pastLength + i + row) % vocabulary);
    }
    std::vector<NamedTensor> inputs =
        valueOrThrow(decoderInputs(session->callerInputs(), input, inputMemory));
    std::vector<NamedView> views;
    for (const NamedTensor& given : inputs)
      views.push_back({given.name, given.tensor.view});
    uint64_t allocatorBefore = session->allocator()->allocations();
    uint64_t heapBefore = heapRequests();
    successOrThrow(session->step(views, tokens, result));
    requests.heap += heapRequests() - heapBefore;
    requests.allocator += session->allocator()->allocations() - allocatorBefore;
  }
  /// Requests of `steps` decoding steps.
  Requests decode(int64_t steps) {
    requests = {};
    for (int64_t i = 0; i < steps; ++i)
      step(1);
    return requests;
  }
  const RunStatistics& last() const { return session->statistics().lastRun; }

  std::unique_ptr<Session> session;

private:
  std::shared_ptr<Allocator> inputMemory = std::make_shared<Allocator>();
  int64_t vocabulary;
  StepResult result;
  Requests requests;
};

/// Steps until whatever is sized, placed and started at first use is there. What depends on the
/// past (masks, where a model computes them) has room for twice the first decoding step's then.
constexpr int64_t prompt = 66;
constexpr int64_t settling = 20;
constexpr int64_t counted = 36;

using DecodeTest = ShippedModelTest;

TEST_P(DecodeTest, InPlaceAllocatesNothing) {
  DrivenModel inPlace = rewritten(path(), registries);
  for (unsigned threads : {1u, 3u})
    for (int64_t batch : {1, 2}) {
      SessionOptions options;
      options.mode = SessionOptions::Mode::Stateful;
      options.capacity = 128;
      options.batch = batch;
      options.threads = threads;
      CountedSession feeder(inPlace, registries.kernels, options);
      feeder.step(prompt);
      feeder.decode(settling);
      Requests requests = feeder.decode(counted);
      EXPECT_EQ(requests.allocator, 0u) << threads << " threads, batch " << batch;
      EXPECT_EQ(requests.heap, 0u) << threads << " threads, batch " << batch;
      EXPECT_EQ(feeder.last().allocations, 0);
    }
}

/// Growing caches need memory when they outgrow what former ones left: a number of times that is
/// the logarithm of the length.
TEST_P(DecodeTest, GrowingCachesSeldomAllocate) {
  DrivenModel exported = asExported(path(), registries);
  CountedSession feeder(exported, registries.kernels, {});
  if (feeder.session->cacheCount() == 0)
    GTEST_SKIP();
  feeder.step(prompt);
  feeder.decode(settling);
  int64_t quiet = 0;
  for (int64_t i = 0; i < counted; ++i) {
    Requests requests = feeder.decode(1);
    quiet += requests.allocator == 0 ? 1 : 0;
    // A run that asks the allocator for nothing asks the heap for nothing.
    if (requests.allocator == 0) {
      EXPECT_EQ(requests.heap, 0u) << "step " << i;
    }
  }
  EXPECT_GE(quiet, counted / 2);
}

INSTANTIATE_TEST_SUITE_P(, DecodeTest, shippedModels(), shippedModelName);

/// A decoder with weights so small that what depends on the past would be seen.
class DeepContextTest : public testing::Test {
protected:
  DrivenModel inPlaceDecoder() {
    DecoderSpec spec;
    spec.headWidth = 8;
    spec.vocabulary = 32;
    DrivenModel driven;
    driven.model = generateDecoder(registries.ops, valueOrThrow(resolved(spec)));
    PassContext context(registries.rules, registries.targets);
    PassManager manager(registries.passes, {});
    successOrThrow(manager.addPipeline(std::string(recoveryPipeline) +
                                       ",lower{to=kvopt},eliminate-dead-nodes"));
    successOrThrow(manager.run(*driven.model, context));
    driven.manifest = *context.manifest;
    return driven;
  }
  Registries registries;
};

TEST_F(DeepContextTest, TemporaryMemoryOfAStepDoesNotDependOnThePast) {
  DrivenModel inPlace = inPlaceDecoder();
  SessionOptions options;
  options.capacity = 8400;
  options.threads = 2;
  CountedSession feeder(inPlace, registries.kernels, options);
  RunStatistics atDepth[2];
  for (int depth = 0; depth < 2; ++depth) {
    int64_t past = depth == 0 ? 128 : 8192;
    while (feeder.session->length() < past)
      feeder.step(std::min<int64_t>(64, past - feeder.session->length()));
    feeder.decode(settling);
    Requests requests = feeder.decode(8);
    EXPECT_EQ(requests.allocator, 0u);
    EXPECT_EQ(requests.heap, 0u);
    atDepth[depth] = feeder.last();
  }
  EXPECT_EQ(atDepth[0].arenaBytes, atDepth[1].arenaBytes);
  EXPECT_EQ(atDepth[0].scratchBytes, atDepth[1].scratchBytes);
  EXPECT_EQ(atDepth[0].dynamicBytes, atDepth[1].dynamicBytes);
  EXPECT_EQ(atDepth[0].reservedBytes, atDepth[1].reservedBytes);
  EXPECT_GT(atDepth[0].temporaryPeak(), 0);
}

} // namespace
} // namespace kvopt
