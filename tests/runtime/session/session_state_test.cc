// What sessions do with their state: every operation over every form of cache, against sessions
// that never needed it.
#include "tests/runtime/session/cached_models.h"

#include "support/diagnostic.h"

#include <gmock/gmock.h>

#include <cstring>
#include <thread>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

using test::CachedModel;
using test::CacheForm;
using testing::HasSubstr;

std::string stateMessageOf(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).str() : "";
}

/// The valid rows of all caches.
std::vector<std::byte> stateContents(const Session& session) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < session.cacheCount(); ++i) {
    const Tensor validRows = llvm::cantFail(session.cacheRows(i));
    TensorView valid = validRows.view;
    std::vector<std::byte> packed(static_cast<size_t>(valid.byteSize()));
    copyElements(valid, TensorView::contiguous(valid.element, valid.shape, packed.data()));
    bytes.insert(bytes.end(), packed.begin(), packed.end());
  }
  return bytes;
}

class SessionState : public testing::TestWithParam<CacheForm> {
protected:
  SessionState() : model(GetParam()) {}

  /// Whether the form can go back to fewer tokens than it has dropped rows for.
  bool goesBack() const { return GetParam() != CacheForm::Ring && GetParam() != CacheForm::State; }
  void expectSame(Session& a, Session& b, int64_t to) {
    EXPECT_EQ(a.length(), b.length());
    EXPECT_EQ(model.feedUpTo(a, to), model.feedUpTo(b, to));
    EXPECT_EQ(stateContents(a), stateContents(b));
  }

  CachedModel model;
};

TEST_P(SessionState, ChunksAndStepsHaveTheSameCaches) {
  if (GetParam() == CacheForm::State)
    GTEST_SKIP() << "this state counts steps";
  auto chunks = model.session();
  auto steps = model.session();
  model.feedUpTo(*chunks, 12);
  for (int64_t i = 0; i < 12; ++i)
    model.feed(*steps, CachedModel::tokens(i, i + 1));
  EXPECT_EQ(stateContents(*chunks), stateContents(*steps));
}

TEST_P(SessionState, ForksDoNotInterfere) {
  auto original = model.session();
  auto straight = model.session();
  model.feedUpTo(*original, 6);
  model.feedUpTo(*straight, 6);
  auto a = llvm::cantFail(original->fork());
  auto b = llvm::cantFail(original->fork());
  model.feed(*a, CachedModel::tokens(6, 9, {0, 1}, 1));
  model.feed(*b, CachedModel::tokens(6, 10, {0, 1}, 2));
  EXPECT_EQ(a->length(), 9);
  EXPECT_EQ(b->length(), 10);
  // Each as if it had been alone.
  auto alone = model.session();
  model.feedUpTo(*alone, 6);
  model.feed(*alone, CachedModel::tokens(6, 9, {0, 1}, 1));
  EXPECT_EQ(stateContents(*a), stateContents(*alone));
  EXPECT_EQ(model.feed(*a, CachedModel::tokens(9, 10)),
            model.feed(*alone, CachedModel::tokens(9, 10)));
  expectSame(*original, *straight, 12);
}

TEST_P(SessionState, CropIsAsIfNothingHadFollowed) {
  for (int64_t kept : {0, 1, 4, 6, 11}) {
    SCOPED_TRACE(kept);
    auto cut = model.session();
    model.feedUpTo(*cut, 11);
    auto never = model.session();
    for (int64_t i = 0; i < kept; ++i)
      model.feed(*never, CachedModel::tokens(i, i + 1));
    std::vector<std::byte> before = stateContents(*cut);
    std::string message = stateMessageOf(cut->crop(kept));
    if (!goesBack() && kept != 0 && kept != 11) {
      EXPECT_THAT(message, HasSubstr(GetParam() == CacheForm::Ring ? "keeps the last 3 rows only"
                                                                   : "is a recurrent state"));
      EXPECT_EQ(stateContents(*cut), before);
      EXPECT_EQ(cut->length(), 11);
      continue;
    }
    ASSERT_EQ(message, "");
    if (kept == 11)
      continue;
    EXPECT_EQ(cut->length(), kept);
    for (int64_t i = kept; i < kept + 4; ++i)
      EXPECT_EQ(model.feed(*cut, CachedModel::tokens(i, i + 1, {0, 1}, 5)),
                model.feed(*never, CachedModel::tokens(i, i + 1, {0, 1}, 5)));
    if (GetParam() != CacheForm::Static) { // rows behind the valid ones are nobody's
      EXPECT_EQ(stateContents(*cut), stateContents(*never));
    }
  }
}

TEST_P(SessionState, CropsWhatThereIsNot) {
  auto session = model.session();
  model.feedUpTo(*session, 5);
  EXPECT_THAT(stateMessageOf(session->crop(6)), HasSubstr("cannot keep 6 of 5 tokens"));
  EXPECT_THAT(stateMessageOf(session->crop(-1)), HasSubstr("cannot keep -1 of 5 tokens"));
  EXPECT_THAT(stateMessageOf(session->cropRows({1})), HasSubstr("1 lengths are given for 2"));
  EXPECT_THAT(stateMessageOf(session->cropRows({2, 6})), HasSubstr("6 of 5 tokens of batch row 1"));
  EXPECT_EQ(session->length(), 5);
}

TEST_P(SessionState, ResetIsAFreshSession) {
  auto session = model.session();
  model.feedUpTo(*session, 9);
  llvm::cantFail(session->reset());
  EXPECT_EQ(session->length(), 0);
  auto fresh = model.session();
  EXPECT_EQ(stateContents(*session), stateContents(*fresh));
  expectSame(*session, *fresh, 8);
}

TEST_P(SessionState, ReorderIsRunningTheRowsApart) {
  const std::vector<std::vector<int64_t>> orders = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 2, 3, 0},
                                                    {2, 2, 0, 0}, {1, 1, 1, 1}, {0, 3, 3, 2}};
  for (const std::vector<int64_t>& order : orders) {
    SCOPED_TRACE(joinedText(order, " "));
    auto batch = model.session(4);
    model.feedUpTo(*batch, 7, {0, 1, 2, 3});
    llvm::cantFail(batch->reorder(order));
    std::vector<float> together = model.feed(*batch, CachedModel::tokens(7, 9, order, 1));
    std::vector<float> apart;
    for (int64_t row : order) {
      auto alone = model.session(1);
      model.feedUpTo(*alone, 7, {row});
      std::vector<float> scores = model.feed(*alone, CachedModel::tokens(7, 9, {row}, 1));
      apart.insert(apart.end(), scores.begin(), scores.end());
    }
    EXPECT_EQ(together, apart);
  }
}

TEST_P(SessionState, ReorderChangesTheBatchSize) {
  for (const std::vector<int64_t>& order : std::vector<std::vector<int64_t>>{{1}, {1, 0, 1, 1}}) {
    auto batch = model.session(2);
    model.feedUpTo(*batch, 6);
    llvm::cantFail(batch->reorder(order));
    EXPECT_EQ(batch->batch(), static_cast<int64_t>(order.size()));
    auto straight = model.session(static_cast<int64_t>(order.size()));
    model.feedUpTo(*straight, 6, order);
    EXPECT_EQ(stateContents(*batch), stateContents(*straight));
    EXPECT_EQ(model.feed(*batch, CachedModel::tokens(6, 9, order)),
              model.feed(*straight, CachedModel::tokens(6, 9, order)));
    auto copy = llvm::cantFail(batch->fork());
    EXPECT_EQ(model.feed(*copy, CachedModel::tokens(9, 10, order)),
              model.feed(*straight, CachedModel::tokens(9, 10, order)));
  }
}

TEST_P(SessionState, ReorderChecksItsRows) {
  auto session = model.session();
  model.feedUpTo(*session, 5);
  std::vector<std::byte> before = stateContents(*session);
  EXPECT_THAT(stateMessageOf(session->reorder({0, 2})),
              HasSubstr("no batch row 2: the session has 2"));
  EXPECT_THAT(stateMessageOf(session->reorder({-1, 0})), HasSubstr("no batch row -1"));
  EXPECT_THAT(stateMessageOf(session->reorder({})), HasSubstr("at least one batch row"));
  EXPECT_EQ(stateContents(*session), before);
}

TEST_P(SessionState, FrozenSessionsAreSmallAndGoOnWhereTheyWere) {
  auto session = model.session();
  auto straight = model.session();
  model.feedUpTo(*session, 6);
  model.feedUpTo(*straight, 6);
  llvm::cantFail(session->freeze());
  llvm::cantFail(session->freeze());
  EXPECT_TRUE(session->isFrozen());
  for (size_t i = 0; i < session->cacheCount(); ++i)
    EXPECT_EQ(session->cacheBuffer(i).byteSize(),
              llvm::cantFail(straight->cacheRows(i)).view.byteSize());
  EXPECT_EQ(stateContents(*session), stateContents(*straight));
  std::vector<std::byte> before = stateContents(*session);
  for (const std::string& message :
       {stateMessageOf(model.step(*session, CachedModel::tokens(6, 7)).takeError()),
        stateMessageOf(session->crop(2)), stateMessageOf(session->reset()),
        stateMessageOf(session->reorder({1, 0})), stateMessageOf(session->load("/nowhere"))})
    EXPECT_THAT(message, HasSubstr("the session is frozen"));
  EXPECT_EQ(stateContents(*session), before);
  llvm::cantFail(session->thaw());
  llvm::cantFail(session->thaw());
  EXPECT_EQ(session->capacity(), straight->capacity());
  expectSame(*session, *straight, 12);
}

TEST_P(SessionState, FrozenSessionsHoldNothingButValidRows) {
  SessionOptions options = model.options();
  options.allocator = std::make_shared<Allocator>();
  auto session = model.session(options);
  model.feedUpTo(*session, 6);
  llvm::cantFail(session->freeze());
  // Beside them, what tells the model its lengths, and constants that are no multiple of 64 bytes.
  constexpr size_t small = 256;
  EXPECT_LE(options.allocator->liveBytes(), stateContents(*session).size() + small);
  auto fork = llvm::cantFail(session->fork());
  EXPECT_LE(options.allocator->liveBytes(), stateContents(*session).size() + 2 * small);
}

TEST_P(SessionState, ForksOfAFrozenSessionShareItsMemory) {
  auto session = model.session();
  auto straight = model.session();
  model.feedUpTo(*session, 6);
  model.feedUpTo(*straight, 6);
  llvm::cantFail(session->freeze());
  auto a = llvm::cantFail(session->fork());
  auto b = llvm::cantFail(session->fork());
  for (size_t i = 0; i < session->cacheCount(); ++i)
    EXPECT_EQ(a->cacheBuffer(i).data, session->cacheBuffer(i).data);
  llvm::cantFail(a->thaw());
  llvm::cantFail(b->thaw());
  model.feed(*a, CachedModel::tokens(6, 9, {0, 1}, 1));
  expectSame(*b, *straight, 9);
  auto again = model.session();
  model.feedUpTo(*again, 6);
  EXPECT_EQ(stateContents(*session), stateContents(*again));
}

TEST_P(SessionState, SessionsOnSeveralThreadsDoNotInterfere) {
  SessionOptions options = model.options();
  options.threads = 2; // of one pool, which all forks use
  auto original = model.session(options);
  model.feedUpTo(*original, 5);
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::vector<float>> results(4);
  for (size_t i = 0; i < results.size(); ++i)
    sessions.push_back(llvm::cantFail(original->fork()));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&, i] {
      for (int64_t at = 5; at < 20; ++at)
        results[i] = model.feed(*sessions[i],
                                CachedModel::tokens(at, at + 1, {0, 1}, static_cast<int64_t>(i)));
    });
  for (std::thread& thread : threads)
    thread.join();
  for (size_t i = 0; i < results.size(); ++i) {
    auto alone = model.session();
    model.feedUpTo(*alone, 5);
    std::vector<float> last;
    for (int64_t at = 5; at < 20; ++at)
      last = model.feed(*alone, CachedModel::tokens(at, at + 1, {0, 1}, static_cast<int64_t>(i)));
    EXPECT_EQ(results[i], last);
    EXPECT_EQ(stateContents(*sessions[i]), stateContents(*alone));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryForm, SessionState, test::everyCacheForm(),
                         [](const auto& parameter) {
                           return std::string(test::name(parameter.param));
                         });

TEST(SessionRing, GoesBackAsLongAsItHoldsEverything) {
  CachedModel model(CacheForm::Ring);
  auto session = model.session();
  model.feed(*session, CachedModel::tokens(0, 3));
  llvm::cantFail(session->crop(1));
  auto never = model.session();
  model.feed(*never, CachedModel::tokens(0, 1));
  EXPECT_EQ(stateContents(*session), stateContents(*never));
  EXPECT_EQ(model.feed(*session, CachedModel::tokens(1, 5)),
            model.feed(*never, CachedModel::tokens(1, 5)));
}

TEST(SessionRows, OfDifferentLengthsAreRunningThemApart) {
  CachedModel model(CacheForm::PerRow);
  const std::vector<int64_t> rows = {0, 1, 2};
  auto batch = model.session(3);
  ASSERT_TRUE(batch->hasLengthPerRow());
  // Prompts of 6, 3 and 5 tokens, padded on the right with what the others have there.
  model.feed(*batch, CachedModel::tokens(0, 6, rows));
  llvm::cantFail(batch->cropRows({6, 3, 5}));
  EXPECT_EQ(batch->length(), 6);
  std::vector<std::unique_ptr<Session>> apart;
  for (int64_t row : rows) {
    apart.push_back(model.session(1));
    model.feed(*apart.back(),
               CachedModel::tokens(0, batch->rowLengths()[static_cast<size_t>(row)], {row}));
  }
  auto expectNext = [&](int64_t count, int64_t variant, const std::vector<size_t>& sources) {
    test::Tokens tokens;
    std::vector<float> expected;
    for (size_t row = 0; row < sources.size(); ++row) {
      tokens.push_back(CachedModel::tokens(0, count, {static_cast<int64_t>(row)}, variant)[0]);
      std::vector<float> scores = model.feed(*apart[sources[row]], {tokens.back()});
      expected.insert(expected.end(), scores.begin(), scores.end());
    }
    EXPECT_EQ(model.feed(*batch, tokens), expected);
  };
  expectNext(2, 1, {0, 1, 2});
  expectNext(1, 2, {0, 1, 2});
  // Drafts that some rows refuse.
  expectNext(4, 3, {0, 1, 2});
  llvm::cantFail(batch->cropRows({9, 10, 10}));
  llvm::cantFail(apart[0]->crop(9));
  llvm::cantFail(apart[2]->crop(10));
  EXPECT_EQ(batch->rowLengths(), llvm::ArrayRef<int64_t>({9, 10, 10}));
  expectNext(3, 4, {0, 1, 2});
  llvm::cantFail(batch->crop(11));
  llvm::cantFail(apart[0]->crop(11));
  llvm::cantFail(apart[1]->crop(11));
  llvm::cantFail(apart[2]->crop(11));
  llvm::cantFail(batch->cropRows({11, 4, 7}));
  llvm::cantFail(apart[1]->crop(4));
  llvm::cantFail(apart[2]->crop(7));
  // Everything that copies keeps the lengths: a cycle, a copy, freezing.
  llvm::cantFail(batch->reorder({2, 0, 1}));
  std::rotate(apart.begin(), apart.begin() + 2, apart.end());
  EXPECT_EQ(batch->rowLengths(), llvm::ArrayRef<int64_t>({7, 11, 4}));
  expectNext(2, 5, {0, 1, 2});
  llvm::cantFail(batch->freeze());
  batch = llvm::cantFail(batch->fork());
  llvm::cantFail(batch->thaw());
  expectNext(1, 6, {0, 1, 2});
  batch = llvm::cantFail(batch->fork());
  expectNext(2, 7, {0, 1, 2});
}

TEST(SessionRows, AreOfOneLengthWhereTheModelIsToldOne) {
  for (CacheForm form : {CacheForm::Shared, CacheForm::Growing, CacheForm::Static}) {
    CachedModel model(form);
    auto session = model.session();
    EXPECT_FALSE(session->hasLengthPerRow());
    model.feedUpTo(*session, 5);
    std::string message = stateMessageOf(session->cropRows({3, 4}));
    EXPECT_THAT(message, HasSubstr("batch rows cannot be of different lengths: "));
    EXPECT_THAT(message, HasSubstr(form == CacheForm::Shared
                                       ? "input 'past_length' is one length"
                                       : "the rows of cache 'past_key' are of one length"));
    EXPECT_EQ(session->length(), 5);
    llvm::cantFail(session->cropRows({3, 3}));
    EXPECT_EQ(session->length(), 3);
  }
}

TEST(SessionRows, TheLongestOneNeedsRoom) {
  CachedModel model(CacheForm::PerRow);
  SessionOptions options = model.options();
  options.capacity = 8;
  auto session = model.session(options);
  model.feed(*session, CachedModel::tokens(0, 7));
  llvm::cantFail(session->cropRows({2, 7}));
  EXPECT_THAT(stateMessageOf(model.step(*session, CachedModel::tokens(0, 2)).takeError()),
              HasSubstr("9 tokens do not fit into the cache's capacity of 8 (7 are in it)"));
  model.feed(*session, CachedModel::tokens(0, 1));
  EXPECT_EQ(session->rowLengths(), llvm::ArrayRef<int64_t>({3, 8}));
}

TEST(SessionGrowth, MovesValidRowsOnly) {
  for (CacheForm form :
       {CacheForm::Shared, CacheForm::PerRow, CacheForm::Transposed, CacheForm::SequenceFirst}) {
    CachedModel model(form);
    SessionOptions options = model.options();
    options.mode = SessionOptions::Mode::Stateful;
    options.capacity = 1;
    auto growing = model.session(options);
    options.mode = SessionOptions::Mode::AsManifest;
    options.capacity = 1100;
    auto fixed = model.session(options);
    int64_t moved = 0;
    for (int64_t i = 0; i < 1024; ++i) {
      if (i == growing->capacity())
        moved += i;
      ASSERT_EQ(model.feed(*growing, CachedModel::tokens(i, i + 1)),
                model.feed(*fixed, CachedModel::tokens(i, i + 1)));
    }
    EXPECT_EQ(stateContents(*growing), stateContents(*fixed));
    EXPECT_LE(growing->statistics().cacheReallocations, 12);
    constexpr int64_t tokenBytes = 2 * 2 * 2 * 4 * 4; // caches, batch rows, heads, width, float
    EXPECT_EQ(growing->statistics().cacheBytesMoved, moved * tokenBytes);
    EXPECT_EQ(fixed->statistics().cacheReallocations, 0);
    EXPECT_EQ(fixed->statistics().cacheBytesMoved, 0);
  }
}

TEST(SessionGrowth, FixedCapacityIsAnErrorThatChangesNothing) {
  CachedModel model(CacheForm::Shared);
  SessionOptions options = model.options();
  options.capacity = 6;
  auto session = model.session(options);
  model.feedUpTo(*session, 5);
  std::vector<std::byte> before = stateContents(*session);
  EXPECT_THAT(stateMessageOf(model.step(*session, CachedModel::tokens(5, 7)).takeError()),
              HasSubstr("capacity of 6"));
  EXPECT_EQ(stateContents(*session), before);
  model.feed(*session, CachedModel::tokens(5, 6));
}

// Made-up rows are the same whatever the layout, and what came before is forgotten.
TEST(SessionPreset, FillsEveryCacheThatHasARowForEachToken) {
  for (test::CacheForm form : {test::CacheForm::Shared, test::CacheForm::Transposed,
                               test::CacheForm::SequenceFirst, test::CacheForm::Growing}) {
    const test::CachedModel cached(form);
    auto one = cached.session();
    auto two = cached.session();
    cached.feed(*two, test::CachedModel::tokens(0, 5));
    for (Session* session : {one.get(), two.get()}) {
      llvm::cantFail(session->preset(3));
      EXPECT_EQ(session->length(), 3);
      EXPECT_EQ(llvm::cantFail(session->cacheRows(0))
                    .view.shape[static_cast<size_t>(session->cacheInfo(0).sequenceAxis)],
                3);
    }
    EXPECT_EQ(cached.feed(*one, test::CachedModel::tokens(3, 5)),
              cached.feed(*two, test::CachedModel::tokens(3, 5)));
    EXPECT_TRUE(llvm::errorToBool(one->preset(-1)));
    if (cached.isShared()) {
      EXPECT_TRUE(llvm::errorToBool(one->preset(test::staticRows + 1)));
    }
    EXPECT_EQ(one->length(), 5);
  }
}

TEST(SessionPreset, AxesAreInTheExportedOrder) {
  test::CachedModel cached(test::CacheForm::Growing);
  auto plain = cached.session();
  llvm::cantFail(plain->preset(3));
  cached.manifest.caches[0].permutation = {0, 1, 3, 2};
  auto permuted = cached.session();
  llvm::cantFail(permuted->preset(3));
  // Exported as [B, 2, 4, P]: its elements in row-major order are those of the other's memory.
  const Tensor exported = llvm::cantFail(
      Tensor::copyOf(permuted->allocator(), llvm::cantFail(permuted->exportedCacheRows(0)).view));
  const Tensor rows =
      llvm::cantFail(Tensor::copyOf(plain->allocator(), llvm::cantFail(plain->cacheRows(0)).view));
  ASSERT_EQ(exported.view.elementCount(), rows.view.elementCount());
  EXPECT_TRUE(std::equal(exported.view.as<float>(),
                         exported.view.as<float>() + exported.view.elementCount(),
                         rows.view.as<float>()));
}

} // namespace
} // namespace kvopt
