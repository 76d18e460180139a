// Tokens dropped from the middle of sessions, over every form of cache.
#include "tests/runtime/session/cached_models.h"

#include "support/diagnostic.h"
#include "tests/support/temporary_folder.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

using test::CachedModel;
using test::CacheForm;
using testing::HasSubstr;

std::string shiftMessageOf(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).str() : "";
}

/// The first `rows` rows of all caches.
std::vector<float> shiftContents(const Session& session) {
  std::vector<float> numbers;
  for (size_t i = 0; i < session.cacheCount(); ++i) {
    const Tensor validRows = llvm::cantFail(session.cacheRows(i));
    TensorView valid = validRows.view;
    const auto axis = static_cast<unsigned>(session.cacheInfo(i).sequenceAxis);
    valid = sliceAxis(valid, axis, 0, std::min(valid.shape[axis], session.length()));
    std::vector<float> packed(static_cast<size_t>(valid.elementCount()));
    copyElements(valid, TensorView::contiguous(valid.element, valid.shape,
                                               reinterpret_cast<std::byte*>(packed.data())));
    numbers.insert(numbers.end(), packed.begin(), packed.end());
  }
  return numbers;
}

/// Tokens [0, kept) and [kept + dropped, end).
test::Tokens withoutDropped(int64_t kept, int64_t dropped, int64_t end,
                            const std::vector<int64_t>& rows = {0, 1}) {
  test::Tokens tokens = CachedModel::tokens(0, kept, rows);
  const test::Tokens later = CachedModel::tokens(kept + dropped, end, rows);
  for (size_t row = 0; row < tokens.size(); ++row)
    tokens[row].insert(tokens[row].end(), later[row].begin(), later[row].end());
  return tokens;
}

class SessionShift : public testing::TestWithParam<CacheForm> {
protected:
  SessionShift() : model(GetParam()) { model.manifest.rotations.emplace(); }
  bool hasRows() const { return GetParam() != CacheForm::Ring && GetParam() != CacheForm::State; }

  CachedModel model;
};

TEST_P(SessionShift, IsAsIfTheTokensHadNeverBeen) {
  struct Drop {
    int64_t kept, dropped;
  };
  for (const Drop& drop : {Drop{0, 1}, {0, 11}, {4, 3}, {2, 7}, {8, 4}, {12, 0}}) {
    SCOPED_TRACE(testing::Message() << drop.kept << " " << drop.dropped);
    auto session = model.session();
    model.feedUpTo(*session, 12);
    const std::vector<float> before = shiftContents(*session);
    const std::string message = shiftMessageOf(session->shift(drop.kept, drop.dropped));
    if (!hasRows()) {
      EXPECT_THAT(message,
                  HasSubstr(GetParam() == CacheForm::Ring ? "is a ring" : "is a recurrent state"));
      EXPECT_EQ(session->length(), 12);
      EXPECT_EQ(shiftContents(*session), before);
      continue;
    }
    ASSERT_EQ(message, "");
    EXPECT_EQ(session->length(), 12 - drop.dropped);
    auto fresh = model.session();
    model.feed(*fresh, withoutDropped(drop.kept, drop.dropped, 12));
    EXPECT_EQ(shiftContents(*session), shiftContents(*fresh));
    for (int64_t i = 12; i < 15; ++i)
      EXPECT_EQ(model.feed(*session, CachedModel::tokens(i, i + 1)),
                model.feed(*fresh, CachedModel::tokens(i, i + 1)));
    EXPECT_EQ(shiftContents(*session), shiftContents(*fresh));
  }
}

TEST_P(SessionShift, LeavesForksAlone) {
  if (!hasRows())
    return;
  auto session = model.session();
  model.feedUpTo(*session, 9);
  auto fork = llvm::cantFail(session->fork());
  const std::vector<float> before = shiftContents(*fork);
  llvm::cantFail(session->shift(1, 4));
  EXPECT_EQ(fork->length(), 9);
  EXPECT_EQ(shiftContents(*fork), before);
  llvm::cantFail(fork->shift(1, 4));
  EXPECT_EQ(shiftContents(*fork), shiftContents(*session));
  // And frozen ones.
  llvm::cantFail(fork->freeze());
  EXPECT_THAT(shiftMessageOf(fork->shift(0, 1)), HasSubstr("frozen"));
  EXPECT_EQ(shiftContents(*fork), shiftContents(*session));
  llvm::cantFail(fork->thaw());
  llvm::cantFail(fork->shift(0, 1));
  EXPECT_EQ(fork->length(), 4);
}

TEST_P(SessionShift, IsSavedAsItIs) {
  if (!hasRows())
    return;
  const TemporaryFolder folder;
  auto session = model.session();
  model.feedUpTo(*session, 9);
  llvm::cantFail(session->shift(2, 3));
  llvm::cantFail(session->save(folder.path("shifted.kv")));
  auto loaded = model.session();
  llvm::cantFail(loaded->load(folder.path("shifted.kv")));
  EXPECT_EQ(shiftContents(*loaded), shiftContents(*session));
  llvm::cantFail(loaded->shift(0, 1));
  llvm::cantFail(session->shift(0, 1));
  EXPECT_EQ(model.feed(*loaded, CachedModel::tokens(9, 11)),
            model.feed(*session, CachedModel::tokens(9, 11)));
}

TEST_P(SessionShift, CountsTheTokensThatAreIntact) {
  if (!hasRows())
    return;
  auto session = model.session();
  model.feedUpTo(*session, 9);
  EXPECT_EQ(session->intactTokens(), INT64_MAX);
  llvm::cantFail(session->shift(4, 2));
  EXPECT_EQ(session->intactTokens(), 4);
  llvm::cantFail(session->shift(5, 0));
  llvm::cantFail(session->shift(5, 1));
  EXPECT_EQ(session->intactTokens(), 4);
  EXPECT_EQ(llvm::cantFail(session->fork())->intactTokens(), 4);
  llvm::cantFail(session->crop(5));
  EXPECT_EQ(session->intactTokens(), 4);
  llvm::cantFail(session->crop(4));
  EXPECT_EQ(session->intactTokens(), INT64_MAX);
  llvm::cantFail(session->shift(1, 2));
  EXPECT_EQ(session->intactTokens(), 1);
  llvm::cantFail(session->reset());
  EXPECT_EQ(session->intactTokens(), INT64_MAX);
}

TEST_P(SessionShift, RefusesWhatThereIsNot) {
  if (!hasRows())
    return;
  auto session = model.session();
  model.feedUpTo(*session, 5);
  for (const auto& [kept, dropped] :
       {std::pair<int64_t, int64_t>{-1, 2}, {1, -1}, {6, 0}, {2, 4}, {0, 6}, {1, INT64_MAX}})
    EXPECT_THAT(shiftMessageOf(session->shift(kept, dropped)), HasSubstr("cannot drop"));
  EXPECT_EQ(session->length(), 5);
  model.manifest.rotations.reset();
  EXPECT_THAT(shiftMessageOf(model.session()->shift(0, 0)), HasSubstr("manifest does not say"));
}

TEST_P(SessionShift, RotatesKeysBack) {
  if (!hasRows())
    return;
  const std::vector<double> theta = {1.0, -0.25};
  for (bool interleaved : {false, true}) {
    model.manifest.rotations = {ManifestRotation{4, 0, interleaved, theta}};
    model.manifest.caches[0].rotation = 0;
    auto session = model.session();
    model.feedUpTo(*session, 12);
    auto fresh = model.session();
    model.feed(*fresh, withoutDropped(3, 5, 12));
    llvm::cantFail(session->shift(3, 5));
    const Tensor rotatedRows = llvm::cantFail(session->cacheRows(0));
    const TensorView rotated = rotatedRows.view;
    const Tensor plainRows = llvm::cantFail(fresh->cacheRows(0));
    const TensorView plain = plainRows.view;
    const auto sequence = static_cast<unsigned>(session->cacheInfo(0).sequenceAxis);
    const unsigned column = sequence == 3 ? 2 : 3;
    int64_t seen = 0;
    for (int64_t row = 0; row < 7; ++row)
      for (size_t pair = 0; pair < 2; ++pair) {
        const int64_t low =
            interleaved ? 2 * static_cast<int64_t>(pair) : static_cast<int64_t>(pair);
        const int64_t high = interleaved ? low + 1 : low + 2;
        const auto at = [&](const TensorView& view, int64_t place) {
          return sliceAxis(sliceAxis(view, sequence, row, row + 1), column, place, place + 1);
        };
        const TensorView x = at(plain, low);
        const TensorView y = at(plain, high);
        const double angle = row < 3 ? 0 : -5 * theta[pair];
        const auto gather = [](const TensorView& view) {
          std::vector<float> packed(static_cast<size_t>(view.elementCount()));
          copyElements(view, TensorView::contiguous(view.element, view.shape,
                                                    reinterpret_cast<std::byte*>(packed.data())));
          return packed;
        };
        const std::vector<float> xs = gather(x);
        const std::vector<float> ys = gather(y);
        const std::vector<float> first = gather(at(rotated, low));
        const std::vector<float> second = gather(at(rotated, high));
        for (size_t i = 0; i < xs.size(); ++i, ++seen) {
          EXPECT_NEAR(first[i], xs[i] * std::cos(angle) - ys[i] * std::sin(angle), 1e-6);
          EXPECT_NEAR(second[i], xs[i] * std::sin(angle) + ys[i] * std::cos(angle), 1e-6);
        }
      }
    EXPECT_EQ(seen, 7 * 2 * 4);
    // Values are moved as they are.
    const auto values = [](const Session& of) {
      std::vector<float> all = shiftContents(of);
      return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                                all.end());
    };
    EXPECT_EQ(values(*session), values(*fresh));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, SessionShift, test::everyCacheForm(),
                         [](const auto& parameter) { return test::name(parameter.param); });

TEST(SessionShiftRows, OfDifferentLengthsAreShiftedEach) {
  CachedModel model(CacheForm::PerRow);
  model.manifest.rotations = {ManifestRotation{4, 0, false, {0.5, 0.125}}};
  model.manifest.caches[0].rotation = 0;
  auto batch = model.session(3);
  const std::vector<int64_t> rows = {0, 1, 2};
  model.feed(*batch, CachedModel::tokens(0, 9, rows));
  llvm::cantFail(batch->cropRows({9, 5, 7}));
  EXPECT_THAT(shiftMessageOf(batch->shift(2, 4)), HasSubstr("after the first 2 of 5"));
  llvm::cantFail(batch->shift(2, 3));
  EXPECT_THAT(batch->rowLengths(), testing::ElementsAre(6, 2, 4));
  for (int64_t row : rows) {
    auto alone = model.session(1);
    const int64_t length = row == 0 ? 9 : row == 1 ? 5 : 7;
    model.feed(*alone, CachedModel::tokens(0, length, {row}));
    llvm::cantFail(alone->shift(2, 3));
    for (size_t i = 0; i < batch->cacheCount(); ++i) {
      const TensorView own = sliceAxis(
          sliceAxis(llvm::cantFail(batch->cacheRows(i)).view, 0, row, row + 1), 2, 0, length - 3);
      const Tensor otherRows = llvm::cantFail(alone->cacheRows(i));
      const TensorView other = otherRows.view;
      std::vector<float> a(static_cast<size_t>(own.elementCount()));
      std::vector<float> b(static_cast<size_t>(other.elementCount()));
      copyElements(own, TensorView::contiguous(own.element, own.shape,
                                               reinterpret_cast<std::byte*>(a.data())));
      copyElements(other, TensorView::contiguous(other.element, other.shape,
                                                 reinterpret_cast<std::byte*>(b.data())));
      EXPECT_EQ(a, b);
      EXPECT_FALSE(a.empty());
    }
  }
}

} // namespace
} // namespace kvopt
