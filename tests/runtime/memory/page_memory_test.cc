// Memory in pages: untouched until written, moved without a copy, fenced for sanitizers.
#include "runtime/memory/page_memory.h"
#include "tests/runtime/memory/resident_pages.h"

#include "llvm/Support/Compiler.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

namespace kvopt {
using namespace runtime;

namespace {

using test::residentPages;

class PageMemory : public testing::Test {
protected:
  test::SmallPagesOnly small;
  const size_t page = pageBytes();
};

/// What stands in page `page` of run `run`.
std::byte mark(size_t run, size_t page) { return std::byte(1 + (run * 31 + page * 7) % 250); }

/// Runs of `runPages` pages, of which the first `touched` are written.
std::byte* marked(size_t count, size_t runPages, size_t touched) {
  std::byte* data = mapPages(count * runPages * pageBytes());
  for (size_t run = 0; run < count; ++run)
    for (size_t i = 0; i < touched; ++i)
      std::memset(data + (run * runPages + i) * pageBytes(), static_cast<int>(mark(run, i)),
                  pageBytes());
  return data;
}

void expectMarked(const std::byte* data, size_t count, size_t runPages, size_t touched) {
  for (size_t run = 0; run < count; ++run)
    for (size_t i = 0; i < runPages; ++i) {
      const std::byte* at = data + (run * runPages + i) * pageBytes();
      const std::byte expected = i < touched ? mark(run, i) : std::byte{0};
      ASSERT_TRUE(at[0] == expected && std::memcmp(at, at + 1, pageBytes() - 1) == 0)
          << "run " << run << ", page " << i;
    }
}

TEST_F(PageMemory, IsZerosThatTakeNoRoom) {
  const size_t bytes = 1000 * page + 5;
  std::byte* data = mapPages(bytes);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % page, 0u);
  EXPECT_EQ(residentPages(data, bytes), 0);
  data[17 * page + 3] = std::byte{1};
  data[bytes - 1] = std::byte{1};
  EXPECT_EQ(residentPages(data, bytes), 2);
  EXPECT_EQ(data[17 * page + 2], std::byte{0});
  unmapPages(data, bytes);
}

TEST_F(PageMemory, ThereMayBeNone) {
  EXPECT_EQ(mapPages(SIZE_MAX), nullptr);
  EXPECT_EQ(mapPages(SIZE_MAX - 2 * page), nullptr);
  EXPECT_EQ(mapPages(SIZE_MAX / 2), nullptr);
}

TEST_F(PageMemory, MovesWhatWasTouchedAndTouchesNothing) {
  for (size_t count : {1, 2, 9})
    for (size_t runPages : {1, 5, 16})
      for (size_t more : {0, 1, 16}) {
        const size_t touched = (runPages + 1) / 2, longer = runPages + more;
        std::byte* from = marked(count, runPages, touched);
        std::byte* to = mapPages(count * longer * page);
        movePages({from, to, count, runPages * page, longer * page});
        forgetMovedPages(from, count * runPages * page);
        EXPECT_EQ(residentPages(to, count * longer * page), static_cast<int64_t>(count * touched));
        expectMarked(to, count, longer, touched);
        unmapPages(to, count * longer * page);
      }
}

TEST_F(PageMemory, MovesAgainAndAgain) {
  constexpr size_t count = 6;
  size_t runPages = 1;
  std::byte* data = marked(count, runPages, 1);
  for (int growth = 0; growth < 7; ++growth) {
    std::byte* to = mapPages(count * 2 * runPages * page);
    movePages({data, to, count, runPages * page, 2 * runPages * page});
    forgetMovedPages(data, count * runPages * page);
    data = to;
    for (size_t run = 0; run < count; ++run)
      for (size_t i = runPages; i < 2 * runPages; ++i)
        std::memset(data + (run * 2 * runPages + i) * page, static_cast<int>(mark(run, i)), page);
    runPages *= 2;
    expectMarked(data, count, runPages, runPages);
  }
  unmapPages(data, count * runPages * page);
}

TEST_F(PageMemory, OnlyWholePagesMove) {
  std::byte* data = mapPages(64 * page);
  std::byte* to = data + 32 * page;
  EXPECT_TRUE((PageRuns{data, to, 2, 2 * page, 4 * page}.isPaged()));
  EXPECT_FALSE((PageRuns{data, to, 2, 2 * page, page}.isPaged()));
  EXPECT_FALSE((PageRuns{data, to, 2, 2 * page + 64, 4 * page}.isPaged()));
  EXPECT_FALSE((PageRuns{data, to, 2, 2 * page, 4 * page + 64}.isPaged()));
  EXPECT_FALSE((PageRuns{data + 64, to, 2, 2 * page, 4 * page}.isPaged()));
  EXPECT_FALSE((PageRuns{data, to + 64, 2, 2 * page, 4 * page}.isPaged()));
  unmapPages(data, 64 * page);
}

/// A process that is out of mappings, but for some.
class MappingShortage {
public:
  explicit MappingShortage(size_t left) {
    void* memory = ::mmap(nullptr, bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data = static_cast<std::byte*>(memory);
    size_t used = 0;
    while (used < pages && ::mprotect(at(used), pageBytes(), PROT_READ) == 0)
      used += 2;
    isShort = used < pages;
    // Without such a page its neighbors are one mapping again.
    for (size_t i = 0; i < left && isShort; ++i)
      ::mprotect(at(2 * i), pageBytes(), PROT_NONE);
  }
  MappingShortage(const MappingShortage&) = delete;
  ~MappingShortage() { ::munmap(data, bytes()); }
  bool isShort = false;

private:
  static constexpr size_t pages = 140'000;
  static size_t bytes() { return pages * pageBytes(); }
  std::byte* at(size_t page) const { return data + page * pageBytes(); }
  std::byte* data;
};

TEST_F(PageMemory, CopiesWhatTheKernelDoesNotMove) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer ends a process that may not make more mappings";
#endif
  constexpr size_t count = 200;
  // Fewer than the runs, so that some move and the others do not.
  for (size_t left : {0, 40}) {
    std::byte* from = marked(count, 2, 1);
    std::byte* to = mapPages(count * 3 * page);
    bool isShort = false;
    {
      MappingShortage shortage(left);
      isShort = shortage.isShort;
      movePages({from, to, count, 2 * page, 3 * page});
    }
    forgetMovedPages(from, count * 2 * page);
    // To look at memory brings pages of zeros along.
    const int64_t resident = residentPages(to, count * 3 * page);
    expectMarked(to, count, 3, 1);
    unmapPages(to, count * 3 * page);
    if (!isShort)
      GTEST_SKIP() << "this process may have more mappings than the test makes";
    // A copy writes the zeros as well.
    if (left == 0) {
      EXPECT_EQ(resident, static_cast<int64_t>(2 * count));
    } else {
      EXPECT_GT(resident, static_cast<int64_t>(count));
      EXPECT_LT(resident, static_cast<int64_t>(2 * count));
    }
  }
}

TEST_F(PageMemory, SanitizersSeeItsEnds) {
  if (!LLVM_ADDRESS_SANITIZER_BUILD)
    GTEST_SKIP() << "without AddressSanitizer";
  const size_t bytes = 3 * page - 100;
  std::byte* data = mapPages(bytes);
  volatile std::byte* memory = data;
  EXPECT_DEATH((void)memory[bytes], "use-after-poison");
  EXPECT_DEATH((void)memory[3 * page], "use-after-poison");
  EXPECT_DEATH(*(memory - 1) = std::byte{1}, "use-after-poison");
  memory[0] = std::byte{1};
  memory[bytes - 1] = std::byte{1};
  unmapPages(data, bytes);
}

} // namespace
} // namespace kvopt
