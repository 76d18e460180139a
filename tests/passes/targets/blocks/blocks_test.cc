// Models whose caches lie in blocks compute what the exported ones do, and what growing caches do
// under the same kernel bit for bit; sessions over blocks do what sessions do.
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <thread>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

class BlocksTest : public ShippedModelTest {
protected:
  /// With room for `capacity` tokens in blocks of `size`.
  DrivenModel inBlocks(int64_t size, int64_t capacity, const std::string& target = "blocks") {
    return rewritten(path(), toolkit, "capacity=" + std::to_string(capacity),
                     target + ":" + std::to_string(size));
  }

  static std::vector<std::byte> bytesOf(const TensorView& view) {
    Tensor copy = valueOrThrow(Tensor::copyOf(std::make_shared<Allocator>(), view));
    return {copy.view.data, copy.view.data + copy.view.byteSize()};
  }
  static void expectSame(const StepResult& expected, const StepResult& found) {
    ASSERT_EQ(expected.outputs.size(), found.outputs.size());
    for (size_t i = 0; i < expected.outputs.size(); ++i)
      EXPECT_EQ(bytesOf(expected.outputs[i].tensor.view), bytesOf(found.outputs[i].tensor.view));
  }
  static void expectSameCaches(const Session& expected, const Session& found) {
    EXPECT_EQ(expected.length(), found.length());
    for (size_t i = 0; i < expected.cacheCount(); ++i)
      EXPECT_EQ(bytesOf(valueOrThrow(expected.exportedCacheRows(i)).view),
                bytesOf(valueOrThrow(found.exportedCacheRows(i)).view));
  }
};

TEST_P(BlocksTest, NothingIsJoinedOutsideOfFunctionBodies) {
  DrivenModel blocks = inBlocks(16, 70);
  unsigned fused = 0;
  for (const Node& node : blocks.model->graph().nodes()) {
    EXPECT_NE(node.op().str(), "ai.kvopt::Sdpa");
    for (unsigned i = 0; node.op() == "Concat" && i < node.operands().size(); ++i)
      EXPECT_FALSE(node.operand(i) && node.operand(i)->name().contains("_block_"));
    fused += node.op().str() == "ai.kvopt::BlockKvSdpa";
  }
  EXPECT_EQ(fused, GetParam().sites);
  for (const ManifestCache& cache : blocks.manifest.caches)
    EXPECT_EQ(cache.blocks().size(), 5u);
}

TEST_P(BlocksTest, ChunksThatFillBlocksAreNotCopied) {
  DrivenModel blocks = inBlocks(8, 64);
  SessionOptions options;
  options.batch = 2;
  auto session = openSession(blocks, toolkit.runner->kernels(), options);
  stepAlike(*session, 16);
  EXPECT_EQ(session->statistics().blockBytesCopied, 0);
  stepAlike(*session, 8);
  EXPECT_EQ(session->statistics().blockBytesCopied, 0);
  stepAlike(*session, 3);
  const int64_t some = session->statistics().blockBytesCopied;
  EXPECT_GT(some, 0);
  // From the middle of a block over a whole one: only the rows around it are copied.
  stepAlike(*session, 15);
  EXPECT_EQ(session->statistics().blockBytesCopied, some / 3 * (3 + 5 + 2));
  EXPECT_EQ(session->length(), 42);
}

TEST_P(BlocksTest, CroppingAdoptedBlocksDoesNotWriteIntoThem) {
  DrivenModel growing = raised(path(), toolkit);
  DrivenModel blocks = inBlocks(8, 64);
  SessionOptions options;
  auto expected = openSession(growing, toolkit.runner->kernels(), options);
  auto found = openSession(blocks, toolkit.runner->kernels(), options);
  for (Session* session : {expected.get(), found.get()}) {
    stepAlike(*session, 16);
    successOrThrow(session->crop(11));
  }
  expectSame(stepAlike(*expected, 1, 4), stepAlike(*found, 1, 4));
  expectSame(stepAlike(*expected, 9, 5), stepAlike(*found, 9, 5));
  expectSameCaches(*expected, *found);
  for (Session* session : {expected.get(), found.get()})
    successOrThrow(session->reset());
  EXPECT_EQ(found->blocks()->manager().takenBlocks(), 0);
  expectSame(stepAlike(*expected, 5, 2), stepAlike(*found, 5, 2));
}

TEST_P(BlocksTest, ForksShareBlocksUntilTheyWrite) {
  DrivenModel growing = raised(path(), toolkit);
  DrivenModel blocks = inBlocks(8, 64);
  auto expected = openSession(growing, toolkit.runner->kernels(), {});
  auto found = openSession(blocks, toolkit.runner->kernels(), {});
  stepAlike(*expected, 20);
  stepAlike(*found, 20);
  auto expectedFork = valueOrThrow(expected->fork());
  auto foundFork = valueOrThrow(found->fork());
  EXPECT_EQ(found->blocks()->manager().takenBlocks(), 3);
  expectSame(stepAlike(*expected, 1, 2), stepAlike(*found, 1, 2));
  expectSame(stepAlike(*expectedFork, 2, 3), stepAlike(*foundFork, 2, 3));
  EXPECT_EQ(found->blocks()->manager().takenBlocks(), 4);
  expectSame(stepAlike(*expected, 6, 4), stepAlike(*found, 6, 4));
  expectSame(stepAlike(*expectedFork, 1, 5), stepAlike(*foundFork, 1, 5));
  expectSameCaches(*expected, *found);
  expectSameCaches(*expectedFork, *foundFork);
  foundFork.reset();
  EXPECT_EQ(found->blocks()->manager().takenBlocks(), 4);
  successOrThrow(found->crop(20));
  EXPECT_EQ(found->blocks()->manager().takenBlocks(), 3);
}

/// Forks on threads of their own take, copy and give back blocks of one pool.
TEST_P(BlocksTest, ForksMayRunAtTheSameTime) {
  DrivenModel blocks = inBlocks(4, 64);
  SessionOptions options;
  options.threads = 1;
  auto session = openSession(blocks, toolkit.runner->kernels(), options);
  stepAlike(*session, 10);
  constexpr int64_t forks = 3;
  auto decode = [](Session& fork, int64_t seed) {
    std::vector<std::byte> last;
    for (int64_t i = 0; i < 20; ++i)
      last = bytesOf(stepAlike(fork, 1, seed).outputs[0].tensor.view);
    successOrThrow(fork.crop(7));
    return last;
  };
  std::vector<std::vector<std::byte>> expected, found(forks);
  for (int64_t i = 0; i < forks; ++i)
    expected.push_back(decode(*valueOrThrow(session->fork()), i));
  std::vector<std::unique_ptr<Session>> running;
  for (int64_t i = 0; i < forks; ++i)
    running.push_back(valueOrThrow(session->fork()));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < running.size(); ++i)
    threads.emplace_back([&, i] { found[i] = decode(*running[i], static_cast<int64_t>(i)); });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(expected, found);
  running.clear();
  EXPECT_EQ(session->blocks()->manager().takenBlocks(), 3);
}

TEST_P(BlocksTest, BeamsAreReordered) {
  DrivenModel growing = raised(path(), toolkit);
  DrivenModel blocks = inBlocks(8, 64);
  SessionOptions options;
  options.batch = 3;
  auto expected = openSession(growing, toolkit.runner->kernels(), options);
  auto found = openSession(blocks, toolkit.runner->kernels(), options);
  for (Session* session : {expected.get(), found.get()}) {
    stepAlike(*session, 11);
    successOrThrow(session->reorder({2, 0, 2}));
  }
  expectSameCaches(*expected, *found);
  expectSame(stepAlike(*expected, 1, 2), stepAlike(*found, 1, 2));
  // A beam is dropped, two are added.
  for (Session* session : {expected.get(), found.get()})
    successOrThrow(session->reorder({1, 0, 1, 0}));
  expectSameCaches(*expected, *found);
  expectSame(stepAlike(*expected, 7, 3), stepAlike(*found, 7, 3));
  expectSameCaches(*expected, *found);
}

TEST_P(BlocksTest, SavedFrozenAndThawedSessionsGoOn) {
  DrivenModel blocks = inBlocks(8, 64);
  SessionOptions options;
  options.batch = 2;
  auto session = openSession(blocks, toolkit.runner->kernels(), options);
  stepAlike(*session, 19);
  const std::string file = testing::TempDir() + "/" + GetParam().name + ".blocks";
  successOrThrow(session->save(file));
  auto loaded = openSession(blocks, toolkit.runner->kernels(), options);
  stepAlike(*loaded, 4, 9);
  successOrThrow(loaded->load(file));
  expectSameCaches(*session, *loaded);
  EXPECT_EQ(loaded->blocks()->manager().takenBlocks(), 3);
  const int64_t before = loaded->cacheBytes();
  successOrThrow(loaded->freeze());
  EXPECT_LT(loaded->cacheBytes(), before);
  auto fork = valueOrThrow(loaded->fork());
  successOrThrow(loaded->thaw());
  successOrThrow(fork->thaw());
  StepResult expected = stepAlike(*session, 2, 3);
  expectSame(expected, stepAlike(*loaded, 2, 3));
  expectSame(expected, stepAlike(*fork, 2, 3));
  expectSameCaches(*session, *fork);
}

TEST_P(BlocksTest, ExhaustionAndCapacityAreErrorsThatChangeNothing) {
  DrivenModel blocks = inBlocks(8, 40);
  SessionOptions options;
  options.blockLimit = 3;
  auto session = openSession(blocks, toolkit.runner->kernels(), options);
  stepAlike(*session, 20);
  DecoderStep tooMany;
  tooMany.pastLength = 20;
  tooMany.tokens = {std::vector<int64_t>(5, 1)};
  auto refused = stepDecoder(*session, tooMany);
  ASSERT_FALSE(refused);
  EXPECT_NE(takeDiagnostic(refused.takeError()).message.find("blocks are needed"),
            std::string::npos);
  EXPECT_EQ(session->length(), 20);
  stepAlike(*session, 4);
  auto roomy = openSession(blocks, toolkit.runner->kernels(), {});
  stepAlike(*roomy, 39);
  EXPECT_EQ(roomy->capacity(), 40);
  tooMany.pastLength = 39;
  auto overflow = stepDecoder(*roomy, tooMany);
  ASSERT_FALSE(overflow);
  llvm::consumeError(overflow.takeError());
  EXPECT_EQ(roomy->length(), 39);
  stepAlike(*roomy, 1);
}

TEST_P(BlocksTest, AShortPromptInALongContextTakesLittleMemory) {
  constexpr int64_t context = 8192, size = 1024;
  DrivenModel blocks = inBlocks(size, context);
  DrivenModel contiguous = rewritten(path(), toolkit, "capacity=" + std::to_string(context));
  auto inBlock = openSession(blocks, toolkit.runner->kernels(), {});
  auto inPlace = openSession(contiguous, toolkit.runner->kernels(), {});
  stepAlike(*inBlock, 50);
  stepAlike(*inPlace, 50);
  EXPECT_EQ(inBlock->blocks()->manager().takenBlocks(), 1);
  const auto taken = static_cast<double>(inBlock->cacheBytes());
  EXPECT_LE(taken, 0.17 * static_cast<double>(inPlace->cacheBytes()));
}

INSTANTIATE_TEST_SUITE_P(Shipped, BlocksTest, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
