// Sessions that go on from rows which another session computed.
#include "runtime/session/prefix_store.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

constexpr const char* storedDecoder = "/models/llama_gqa-ts14-eager/model.onnx";

std::vector<int64_t> tokensFrom(int64_t seed, int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back((seed * 31 + i * (7 + seed)) % 150);
  return tokens;
}

StepResult feed(Session& session, llvm::ArrayRef<int64_t> tokens) {
  DecoderStep step;
  step.pastLength = session.length();
  step.tokens = {tokens.vec()};
  return valueOrThrow(stepDecoder(session, step));
}

bool isSame(const TensorView& a, const TensorView& b) {
  return valueOrThrow(compareTensors(a, b, Tolerance{0, 0})).bitExact;
}

class PrefixStoreTest : public testing::Test {
protected:
  DrivenModel inForm(const std::string& target) {
    const std::string path = KVOPT_SOURCE_DIR + std::string(storedDecoder);
    return target.empty() ? asExported(path, toolkit)
                          : rewritten(path, toolkit, "capacity=128", target);
  }

  std::unique_ptr<Session> sessionOf(const DrivenModel& driven, int64_t batch = 1) {
    SessionOptions options;
    options.batch = batch;
    options.threads = 1;
    options.capacity = driven.manifest.ownsCaches() ? 128 : 0;
    return valueOrThrow(
        Session::create(*driven.model, toolkit.runner->kernels(), driven.manifest, options));
  }

  Toolkit toolkit;
};

TEST_F(PrefixStoreTest, GivesTheRowsOfTheSessionThatKeptThem) {
  const std::vector<int64_t> tokens = tokensFrom(1, 50);
  for (const char* form : {"", "kvopt", "int8", "onnx24", "blocks:8", "int8-blocks:8"}) {
    SCOPED_TRACE(form);
    const DrivenModel model = inForm(form);
    PrefixStore store({16});
    auto first = sessionOf(model);
    feed(*first, tokens);
    successOrThrow(store.keep(first->caches(), tokens));
    EXPECT_EQ(store.statistics().blocks, 3);
    successOrThrow(store.keep(first->caches(), tokens)); // what is there already
    EXPECT_EQ(store.statistics().blocks, 3);
    // The 49 tokens before the last one hold three blocks; 33 hold two, of which one has other
    // tokens.
    std::vector<int64_t> other = llvm::ArrayRef<int64_t>(tokens).take_front(34).vec();
    other[20] += 1;
    for (const auto& [prompt, found] : {std::pair(tokens, 48), std::pair(other, 16)}) {
      auto second = sessionOf(model);
      ASSERT_EQ(valueOrThrow(store.restore(second->caches(), prompt)), found);
      EXPECT_EQ(second->length(), found);
      auto third = sessionOf(model);
      feed(*third, tokens);
      successOrThrow(third->crop(found));
      for (size_t i = 0; i < second->cacheCount(); ++i)
        EXPECT_TRUE(isSame(valueOrThrow(second->cacheRows(i)).view,
                           valueOrThrow(third->cacheRows(i)).view));
      const auto rest = llvm::ArrayRef<int64_t>(prompt).drop_front(static_cast<size_t>(found));
      const StepResult ours = feed(*second, rest);
      const StepResult expected = feed(*third, rest);
      EXPECT_TRUE(isSame(ours.outputs[0].tensor.view, expected.outputs[0].tensor.view));
    }
    EXPECT_EQ(store.statistics().hits, 4);
    EXPECT_EQ(store.statistics().misses, 1);
  }
}

TEST_F(PrefixStoreTest, TellsModelsAndContextsApart) {
  const std::vector<int64_t> tokens = tokensFrom(1, 40);
  const DrivenModel model = inForm("kvopt");
  const DrivenModel other = inForm("int8");
  PrefixStore store({16});
  auto session = sessionOf(model);
  feed(*session, tokens);
  successOrThrow(store.keep(session->caches(), tokens, 5));
  auto same = sessionOf(model);
  EXPECT_EQ(valueOrThrow(store.restore(same->caches(), tokens, 6)), 0);
  auto quantized = sessionOf(other);
  EXPECT_EQ(valueOrThrow(store.restore(quantized->caches(), tokens, 5)), 0);
  EXPECT_EQ(valueOrThrow(
                store.restore(same->caches(), llvm::ArrayRef<int64_t>(tokens).take_front(16), 5)),
            0); // the last token is left to the caller
  EXPECT_EQ(valueOrThrow(store.restore(same->caches(), tokens, 5)), 32);
}

TEST_F(PrefixStoreTest, ForgetsWhatWasUsedLongestAgo) {
  const DrivenModel model = inForm("kvopt");
  auto session = sessionOf(model);
  feed(*session, tokensFrom(1, 8));
  PrefixStore measured({8});
  successOrThrow(measured.keep(session->caches(), tokensFrom(1, 8)));
  const int64_t bytes = measured.statistics().bytes;
  EXPECT_EQ(bytes, 2 * 2 * 2 * 16 * 4 * 8); // layers, sides, heads, width, of eight rows
  PrefixStore store({8, 4 * bytes});
  for (int64_t seed : {1, 2}) {
    auto own = sessionOf(model);
    feed(*own, tokensFrom(seed, 16));
    successOrThrow(store.keep(own->caches(), tokensFrom(seed, 16)));
  }
  EXPECT_EQ(store.statistics().blocks, 4);
  auto again = sessionOf(model);
  EXPECT_EQ(valueOrThrow(store.restore(again->caches(), tokensFrom(1, 17))), 16);
  auto third = sessionOf(model);
  feed(*third, tokensFrom(3, 8));
  successOrThrow(store.keep(third->caches(), tokensFrom(3, 8)));
  EXPECT_EQ(store.statistics().evicted, 1);
  EXPECT_EQ(store.statistics().bytes, 4 * bytes);
  // The end of the second chain went, not its beginning, which would have lost both.
  const std::pair<int64_t, int64_t> left[] = {{1, 16}, {2, 8}, {3, 8}};
  for (const auto& [seed, found] : left) {
    auto own = sessionOf(model);
    EXPECT_EQ(valueOrThrow(store.restore(own->caches(), tokensFrom(seed, 17))), found) << seed;
  }
  // A chain that does not fit keeps its beginning.
  auto longer = sessionOf(model);
  feed(*longer, tokensFrom(4, 64));
  successOrThrow(store.keep(longer->caches(), tokensFrom(4, 64)));
  EXPECT_LE(store.statistics().bytes, 4 * bytes);
  auto own = sessionOf(model);
  EXPECT_EQ(valueOrThrow(store.restore(own->caches(), tokensFrom(4, 64))), 32);
}

TEST_F(PrefixStoreTest, ServesSessionsInSeveralThreads) {
  const DrivenModel model = inForm("kvopt");
  auto size = sessionOf(model);
  feed(*size, tokensFrom(0, 8));
  PrefixStore measured({8});
  successOrThrow(measured.keep(size->caches(), tokensFrom(0, 8)));
  // With room for less than all of it.
  PrefixStore store({8, 10 * measured.statistics().bytes});
  std::vector<std::unique_ptr<Session>> fresh;
  for (int64_t seed = 0; seed < 4; ++seed) {
    fresh.push_back(sessionOf(model));
    feed(*fresh.back(), tokensFrom(seed, 40));
  }
  std::atomic<int64_t> found = 0;
  std::atomic<int64_t> different = 0;
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int64_t turn = 0; turn < 12; ++turn) {
        const int64_t seed = (thread + turn) % 4;
        const std::vector<int64_t> tokens = tokensFrom(seed, 40);
        auto session = sessionOf(model);
        const int64_t count = valueOrThrow(store.restore(session->caches(), tokens));
        found += count;
        for (size_t i = 0; count != 0 && i < session->cacheCount(); ++i)
          different +=
              !isSame(valueOrThrow(session->cacheRows(i)).view,
                      sliceAxis(valueOrThrow(fresh[static_cast<size_t>(seed)]->cacheRows(i)).view,
                                2, 0, count));
        if (count < 40) {
          session = sessionOf(model);
          feed(*session, tokens);
          successOrThrow(store.keep(session->caches(), tokens));
        }
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(different, 0);
  EXPECT_GT(found, 0);
  EXPECT_GT(store.statistics().evicted, 0);
  EXPECT_LE(store.statistics().blocks, 10);
}

TEST_F(PrefixStoreTest, RefusesTokensBehindDroppedOnes) {
  const DrivenModel model = inForm("kvopt");
  PrefixStore store({8});
  const std::vector<int64_t> tokens = tokensFrom(1, 40);
  auto session = sessionOf(model);
  feed(*session, tokens);
  successOrThrow(session->shift(20, 8));
  const llvm::ArrayRef<int64_t> all(tokens);
  EXPECT_THAT(takeDiagnostic(store.keep(session->caches(), all.take_front(24))).str(),
              testing::HasSubstr("only the rows of the first 20 are unchanged"));
  EXPECT_EQ(store.statistics().blocks, 0);
  successOrThrow(store.keep(session->caches(), all.take_front(20)));
  EXPECT_EQ(store.statistics().blocks, 2);
}

TEST_F(PrefixStoreTest, RefusesWhatHasNoRowForEachToken) {
  const DrivenModel model = inForm("kvopt");
  PrefixStore store({8});
  const std::vector<int64_t> tokens = tokensFrom(1, 16);
  auto batch = sessionOf(model, 2);
  const auto textOf = [](llvm::Error error) { return takeDiagnostic(std::move(error)).str(); };
  EXPECT_THAT(textOf(store.keep(batch->caches(), tokens)),
              testing::HasSubstr("not of a batch of 2"));
  auto session = sessionOf(model);
  EXPECT_THAT(textOf(store.keep(session->caches(), tokens)), testing::HasSubstr("has seen only 0"));
  feed(*session, tokens);
  EXPECT_THAT(textOf(store.restore(session->caches(), tokens).takeError()),
              testing::HasSubstr("holds 16 tokens already"));
  TemporaryFolder folder;
  const DrivenModel state = asExported(writtenModel(R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[B, S] input_ids, float[B, 4, 1] past) => (float[B, S, 1] logits, float[B, 4, 1] present)
<int64[1] last = {2}>
{
  ids = Cast <to = 1> (input_ids)
  logits = Unsqueeze (ids, last)
  present = Mul (past, past)
})",
                                                    toolkit, folder),
                                       toolkit);
  auto recurrent = sessionOf(state);
  EXPECT_THAT(textOf(store.keep(recurrent->caches(), {})),
              testing::HasSubstr("a row for each token"));
}

} // namespace
} // namespace kvopt
