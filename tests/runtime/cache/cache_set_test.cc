// Caches of one session that become longer: what they hold, what is touched, what is copied.
#include "runtime/cache/cache_set.h"
#include "support/diagnostic.h"
#include "tests/runtime/memory/resident_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

using test::residentPages;

enum class Layout { HeadMajor, TokenMajor, Transposed, SequenceFirst, Folded };
constexpr Layout everyLayout[] = {Layout::HeadMajor, Layout::TokenMajor, Layout::Transposed,
                                  Layout::SequenceFirst, Layout::Folded};

struct Form {
  Layout layout = Layout::HeadMajor;
  int64_t heads = 4;
  int64_t width = 128;
};

ManifestCache described(const Form& form) {
  ManifestCache cache;
  cache.past = "past";
  cache.storage = BufferCache();
  const ManifestExtent batch = std::string("B"), rows = std::string("C");
  switch (form.layout) {
  case Layout::HeadMajor:
    cache.shape = {batch, form.heads, rows, form.width};
    cache.sequenceAxis = 2;
    break;
  case Layout::TokenMajor:
    cache.shape = {batch, rows, form.heads, form.width};
    cache.sequenceAxis = 1;
    break;
  case Layout::Transposed:
    cache.shape = {batch, form.heads, form.width, rows};
    cache.sequenceAxis = 3;
    break;
  case Layout::SequenceFirst:
    cache.shape = {rows, batch, form.heads, form.width};
    cache.sequenceAxis = 0;
    break;
  case Layout::Folded:
    cache.shape = {std::to_string(form.heads) + "*B", rows, form.width};
    cache.sequenceAxis = 1;
    break;
  }
  return cache;
}

/// Two caches of one form.
class Caches {
public:
  Caches(const Form& form, int64_t batch, int64_t room, bool poison = false,
         std::shared_ptr<Allocator> allocator = std::make_shared<Allocator>())
      : descriptions{described(form), described(form)} {
    CacheSetOptions options;
    options.batch = batch;
    options.room = room;
    options.poison = poison;
    options.allocator = std::move(allocator);
    set = llvm::cantFail(CacheSet::create(descriptions, std::move(options)));
  }

  /// Every element of a batch row's token is a number of its own, and never 0.
  static float element(size_t cache, int64_t row, int64_t token, int64_t i) {
    return static_cast<float>(1 + cache * 5 + static_cast<size_t>(row) * 11) +
           static_cast<float>(token) * 0.5f + static_cast<float>(i % 512) * 0.0009765625f;
  }
  /// Rows [from, to) of the batch row `row`, element by element.
  template <class Visit>
  static void visit(const CacheSet& set, size_t cache, int64_t row, int64_t from, int64_t to,
                    const Visit& each) {
    const CacheGeometry& geometry = set.geometry(cache);
    const auto axis = geometry.sequenceAxis();
    const TensorView rows = geometry.batchRow(set.buffer(cache), row);
    const TensorView first = sliceAxis(rows, axis, 0, 1);
    // Where the elements of a row are, which is the same for every row.
    std::vector<int64_t> offsets;
    for (int64_t i = 0; i < first.elementCount(); ++i) {
      int64_t offset = 0, rest = i;
      for (unsigned at = first.rank(); at-- > 0; rest /= first.shape[at])
        offset += rest % first.shape[at] * first.strides[at];
      offsets.push_back(offset);
    }
    const int64_t* places = offsets.data();
    const auto count = static_cast<int64_t>(offsets.size());
    for (int64_t token = from; token < to; ++token) {
      float* start = rows.as<float>() + token * rows.strides[axis];
      for (int64_t i = 0; i < count; ++i)
        each(start[places[i]], token, i);
    }
  }

  void append(int64_t count) {
    llvm::cantFail(set.reserve(count));
    for (size_t cache = 0; cache < set.size(); ++cache)
      for (int64_t row = 0; row < set.batch(); ++row) {
        int64_t from = set.lengths()[static_cast<size_t>(row)];
        visit(set, cache, row, from, from + count, [&](float& value, int64_t token, int64_t i) {
          value = element(cache, row, token, i);
        });
      }
    set.advance(count);
  }

  static void expectIntact(const CacheSet& set) {
    for (size_t cache = 0; cache < set.size(); ++cache)
      for (int64_t row = 0; row < set.batch(); ++row) {
        bool isIntact = true;
        visit(set, cache, row, 0, set.lengths()[static_cast<size_t>(row)],
              [&](const float& value, int64_t token, int64_t i) {
                isIntact &= value == element(cache, row, token, i);
              });
        EXPECT_TRUE(isIntact) << "cache " << cache << ", batch row " << row;
      }
  }
  template <class Holds> void expectUnused(const Holds& holds) const {
    for (size_t cache = 0; cache < set.size(); ++cache)
      for (int64_t row = 0; row < set.batch(); ++row) {
        bool isExpected = true;
        visit(set, cache, row, set.lengths()[static_cast<size_t>(row)], set.room(),
              [&](const float& value, int64_t, int64_t) { isExpected &= holds(value); });
        EXPECT_TRUE(isExpected) << "cache " << cache << ", batch row " << row;
      }
  }
  int64_t resident() const {
    int64_t pages = 0;
    for (size_t cache = 0; cache < set.size(); ++cache)
      pages +=
          residentPages(set.buffer(cache).data, static_cast<size_t>(set.buffer(cache).byteSize()));
    return pages;
  }
  int64_t validBytes() const {
    int64_t bytes = 0;
    for (size_t cache = 0; cache < set.size(); ++cache)
      bytes += set.view(cache).byteSize();
    return bytes;
  }

  std::vector<ManifestCache> descriptions;
  CacheSet set;
};

bool isZero(float value) { return value == 0; }
bool isNaN(float value) { return std::isnan(value); }

class CacheGrowth : public testing::Test {
protected:
  test::SmallPagesOnly small;
  const int64_t page = static_cast<int64_t>(pageBytes());
};

TEST_F(CacheGrowth, OpeningTouchesNothing) {
  for (Layout layout : everyLayout) {
    Caches caches({layout}, 2, 4096);
    EXPECT_EQ(caches.resident(), 0);
    EXPECT_EQ(caches.set.bytes(), int64_t{2} * 2 * 4 * 4096 * 512);
    caches.append(1);
    // A row of 512 bytes in each of 8 heads; of 128 columns; of all heads together.
    const int64_t touched = layout == Layout::Transposed      ? 2 * 4 * 128
                            : layout == Layout::TokenMajor    ? 2
                            : layout == Layout::SequenceFirst ? 1
                                                              : 2 * 4;
    EXPECT_EQ(caches.resident(), 2 * touched);
    Caches::expectIntact(caches.set);
    caches.expectUnused(isZero);
  }
}

TEST_F(CacheGrowth, CopiesTouchWhatIsValid) {
  Caches caches({}, 2, 4096);
  caches.append(100); // 13 pages a head
  auto fork = llvm::cantFail(caches.set.clone());
  EXPECT_EQ(residentPages(fork.buffer(0).data, static_cast<size_t>(fork.buffer(0).byteSize())),
            2 * 4 * ((100 * 512 + page - 1) / page));
  Caches::expectIntact(fork);
}

TEST_F(CacheGrowth, KeepsRowsInEveryLayout) {
  for (Layout layout : everyLayout)
    for (int64_t width : {128, 80, 3})
      for (int64_t batch : {1, 2}) {
        SCOPED_TRACE(
            formatted("layout {}, width {}, batch {}", static_cast<int>(layout), width, batch));
        Caches caches({layout, 4, width}, batch, 16);
        for (int growth = 0; growth < 6; ++growth) {
          caches.append(caches.set.room() - caches.set.length() - growth % 2);
          const int64_t wanted = 2 * caches.set.room();
          llvm::cantFail(caches.set.grow(wanted));
          EXPECT_GE(caches.set.room(), wanted);
          EXPECT_LE(caches.set.room(), wanted + wanted / 16);
          EXPECT_EQ(caches.set.buffer(1).shape, caches.set.geometry(1).shape(caches.set.room()));
          EXPECT_TRUE(caches.set.buffer(1).isContiguous());
          Caches::expectIntact(caches.set);
          caches.expectUnused(isZero);
        }
      }
}

TEST_F(CacheGrowth, MovesPagesWhereThereIsMuch) {
  for (Layout layout :
       {Layout::HeadMajor, Layout::TokenMajor, Layout::SequenceFirst, Layout::Folded}) {
    SCOPED_TRACE(static_cast<int>(layout));
    Caches caches({layout}, 2, 512); // 256 KiB a head
    caches.append(512);
    for (int growth = 0; growth < 3; ++growth) {
      const int64_t before = caches.resident();
      EXPECT_EQ(before * page, caches.validBytes());
      EXPECT_EQ(llvm::cantFail(caches.set.grow(2 * caches.set.room())), 0);
      EXPECT_EQ(caches.resident(), before);
      Caches::expectIntact(caches.set);
      caches.append(caches.set.room() / 2);
      Caches::expectIntact(caches.set);
    }
  }
}

TEST_F(CacheGrowth, CopiesWhereThereIsLittle) {
  Caches caches({}, 2, 64);
  caches.append(64);
  EXPECT_EQ(llvm::cantFail(caches.set.grow(128)), caches.validBytes());
  Caches transposed({Layout::Transposed}, 1, 4096); // 16 KiB a column
  transposed.append(100);
  EXPECT_EQ(llvm::cantFail(transposed.set.grow(8192)), transposed.validBytes());
  Caches::expectIntact(transposed.set);
}

TEST_F(CacheGrowth, MovesColumnsThatAreLong) {
  Caches caches({Layout::Transposed, 1, 3}, 1, 131072);
  caches.append(20);
  EXPECT_EQ(llvm::cantFail(caches.set.grow(262144)), 0);
  Caches::expectIntact(caches.set);
  EXPECT_EQ(caches.resident(), 2 * 3);
}

TEST_F(CacheGrowth, ChoosesRoomThatEndsWithAPage) {
  Caches caches({Layout::HeadMajor, 4, 80}, 2, 1000); // 320 bytes a row
  caches.append(1000);
  EXPECT_EQ(llvm::cantFail(caches.set.grow(2000)), caches.validBytes());
  EXPECT_EQ(caches.set.room(), 2048); // rows of 320 bytes start with a page every 64 rows
  caches.append(1048);
  EXPECT_EQ(llvm::cantFail(caches.set.grow(4001)), 0);
  EXPECT_EQ(caches.set.room(), 4032);
  Caches::expectIntact(caches.set);
}

TEST_F(CacheGrowth, KeepsBatchRowsOfDifferentLengths) {
  for (Layout layout : {Layout::HeadMajor, Layout::TokenMajor, Layout::Transposed})
    for (int64_t room : {40, 512}) {
      Caches caches({layout}, 3, room);
      caches.append(room);
      llvm::cantFail(caches.set.crop({room, 3, room - 17}));
      llvm::cantFail(caches.set.grow(2 * room));
      EXPECT_EQ(caches.set.lengths(), llvm::ArrayRef<int64_t>({room, 3, room - 17}));
      Caches::expectIntact(caches.set);
      caches.append(5);
      Caches::expectIntact(caches.set);
    }
}

TEST_F(CacheGrowth, PoisonsWhatIsNotValid) {
  for (Layout layout : everyLayout)
    for (int64_t room : {40, 512}) {
      Caches caches({layout}, 2, room, /*poison=*/true);
      caches.expectUnused(isNaN);
      caches.append(room);
      llvm::cantFail(caches.set.crop({room - 1, 7}));
      llvm::cantFail(caches.set.grow(2 * room));
      caches.expectUnused(isNaN);
      Caches::expectIntact(caches.set);
      caches.set = llvm::cantFail(caches.set.clone());
      caches.expectUnused(isNaN);
      Caches::expectIntact(caches.set);
    }
}

TEST_F(CacheGrowth, LeavesAloneWhatFrozenSetsShare) {
  Caches caches({}, 1, 512);
  caches.append(512);
  llvm::cantFail(caches.set.freeze());
  auto shared = llvm::cantFail(caches.set.clone());
  llvm::cantFail(caches.set.thaw(512));
  caches.append(0);
  EXPECT_EQ(llvm::cantFail(caches.set.grow(1024)), 0);
  Caches::expectIntact(caches.set);
  Caches::expectIntact(shared);
}

TEST_F(CacheGrowth, IsAllOrNothing) {
  for (int64_t room : {64, 512})
    for (uint64_t failing : {2, 3}) { // of the second growth's two requests
      auto allocator = std::make_shared<FailingAllocator>(failing);
      Caches caches({}, 2, room, /*poison=*/false, allocator);
      caches.append(room);
      const std::byte* places[] = {caches.set.buffer(0).data, caches.set.buffer(1).data};
      auto refused = caches.set.grow(2 * room);
      ASSERT_FALSE(static_cast<bool>(refused));
      EXPECT_THAT(takeDiagnostic(refused.takeError()).str(), testing::HasSubstr("cannot allocate"));
      EXPECT_EQ(caches.set.room(), room);
      EXPECT_EQ(caches.set.buffer(0).data, places[0]);
      EXPECT_EQ(caches.set.buffer(1).data, places[1]);
      EXPECT_EQ(allocator->liveBytes(), static_cast<size_t>(caches.set.bytes()));
      Caches::expectIntact(caches.set);
      llvm::cantFail(caches.set.grow(2 * room));
      Caches::expectIntact(caches.set);
      EXPECT_EQ(allocator->liveBytes(), static_cast<size_t>(caches.set.bytes()));
    }
}

TEST_F(CacheGrowth, PrefersLargePagesOnceTheyAreMostlyUsed) {
  std::byte* probe = mapPages(largePageBytes);
  preferLargePages(probe, largePageBytes);
  const bool isKnown = test::prefersLargePages(probe);
  unmapPages(probe, largePageBytes);
  if (!isKnown)
    GTEST_SKIP() << "a kernel without large pages";
  const auto prefersLarge = [](const Caches& caches) {
    return test::prefersLargePages(caches.set.buffer(1).data);
  };
  // A third of 9000 rows is less than the 4096 that fill 2 MiB, that of 30000 is more.
  for (const auto& [room, enough] : {std::pair(9000, 3000), std::pair(30000, 4096)}) {
    Caches caches({Layout::HeadMajor, 1, 128}, 1, room);
    llvm::cantFail(caches.set.reserve(enough - 1));
    EXPECT_FALSE(prefersLarge(caches));
    llvm::cantFail(caches.set.reserve(enough));
    EXPECT_TRUE(prefersLarge(caches));
  }
  Caches growing({Layout::HeadMajor, 1, 128}, 1, 2048);
  growing.append(2048);
  EXPECT_FALSE(prefersLarge(growing));
  // Rows that moved, and those that will follow them.
  llvm::cantFail(growing.set.grow(8192));
  EXPECT_FALSE(prefersLarge(growing));
  growing.append(2000);
  EXPECT_TRUE(prefersLarge(growing));
}

TEST_F(CacheGrowth, RefusesRoomThatNobodyHas) {
  Caches caches({}, 1, 512);
  caches.append(512);
  for (int64_t room : {int64_t{1} << 36, INT64_MAX / 4096, INT64_MAX}) {
    auto refused = caches.set.grow(room);
    EXPECT_FALSE(static_cast<bool>(refused));
    llvm::consumeError(refused.takeError());
  }
  EXPECT_EQ(caches.set.room(), 512);
  Caches::expectIntact(caches.set);
}

/// Six tokens in blocks of four.
llvm::Expected<CacheSet> setInBlocks(const std::shared_ptr<Allocator>& allocator) {
  ManifestCache cache;
  cache.past = "past";
  cache.shape = {std::string("B"), int64_t{2}, std::string("C"), int64_t{3}};
  cache.sequenceAxis = 2;
  cache.storage = BlockCache{{"past_0", "past_1"}};
  CacheSetOptions options;
  options.blockTokens = 4;
  options.blockRoom = 8;
  options.allocator = allocator;
  llvm::Expected<CacheSet> set = CacheSet::create(cache, options);
  if (!set)
    return set;
  if (llvm::Error error = set->reserve(6))
    return error;
  llvm::Expected<Tensor> rows =
      Tensor::create(std::make_shared<Allocator>(), ElementType::Float, {1, 2, 6, 3});
  if (!rows)
    return rows.takeError();
  for (int64_t i = 0; i < rows->view.elementCount(); ++i)
    rows->view.as<float>()[i] = static_cast<float>(i);
  llvm::Expected<int64_t> written = set->writeRows(0, *rows);
  if (!written)
    return written.takeError();
  set->advance(6);
  return set;
}

/// Rows in blocks are copied for a reader, who keeps the copy and hears of an error.
TEST(CachesInBlocks, RowsAreCopiedOrAnError) {
  const auto allocator = std::make_shared<Allocator>();
  CacheSet set = llvm::cantFail(setInBlocks(allocator));
  const uint64_t requests = allocator->allocations();
  const Tensor first = llvm::cantFail(set.rows(0));
  const Tensor second = llvm::cantFail(set.rows(0));
  EXPECT_EQ(first.view.shape, Extents({1, 2, 6, 3}));
  EXPECT_NE(first.view.data, second.view.data);
  for (int64_t i = 0; i < first.view.elementCount(); ++i)
    ASSERT_EQ(first.view.as<float>()[i], static_cast<float>(i));
  const auto stored = llvm::cantFail(set.stored());
  EXPECT_NE(stored.front().owner, nullptr);

  CacheSet poor = llvm::cantFail(setInBlocks(std::make_shared<FailingAllocator>(requests)));
  llvm::Expected<Tensor> refused = poor.rows(0);
  ASSERT_FALSE(static_cast<bool>(refused));
  llvm::consumeError(refused.takeError());
  EXPECT_TRUE(static_cast<bool>(llvm::expectedToOptional(poor.rows(0)))); // as it was
}

/// A view of any other cache is of the set's own memory.
TEST(CacheViews, AreNotCopies) {
  CacheSetOptions options;
  options.room = 8;
  options.allocator = std::make_shared<Allocator>();
  CacheSet set = llvm::cantFail(CacheSet::create(described({}), options));
  set.advance(3);
  EXPECT_EQ(set.view(0).data, set.buffer(0).data);
  EXPECT_EQ(llvm::cantFail(set.rows(0)).view.data, set.buffer(0).data);
  EXPECT_NE(llvm::cantFail(set.copyOfRows(0)).view.data, set.buffer(0).data);
}

} // namespace
} // namespace kvopt
