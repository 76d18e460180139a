// Cache files: what is written is read back, and nothing else is accepted.
#include "runtime/cache/cache_file.h"

#include "runtime/cache/cache_file_layout.h"
#include "runtime/cache/checksum.h"
#include "runtime/memory/buffer.h"
#include "support/diagnostic.h"
#include "tests/support/output_at.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes readAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto bytes = std::as_bytes(std::span<const char>(text));
  return {bytes.begin(), bytes.end()};
}

std::string fileMessageOf(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).str() : "";
}

std::string refusal(const Bytes& file, CacheFileChecks checks = CacheFileChecks::All) {
  llvm::Expected<CacheFileContents> contents = parseCacheFile(file, checks);
  return fileMessageOf(contents.takeError());
}

/// A folder that is gone after the test.
class CacheFileTest : public testing::Test {
protected:
  CacheFileTest()
      : folder(fs::temp_directory_path() / ("kvopt-cache-file-" + std::to_string(getpid()))) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    for (size_t i = 0; i < fingerprint.size(); ++i)
      fingerprint[i] = static_cast<uint8_t>(i);
  }
  ~CacheFileTest() override { fs::remove_all(folder); }

  std::string path() const { return (folder / "cache.kvc").string(); }
  size_t filesInFolder() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  /// Keys [2, 3 of 5 rows, 4] and values transposed: [2, 4, 3 of 5 rows].
  std::vector<StoredCache> twoCaches() {
    std::vector<StoredCache> caches(2);
    for (size_t i = 0; i < 2; ++i) {
      auto axis = static_cast<unsigned>(i + 1);
      Extents shape = i == 0 ? Extents{2, 5, 4} : Extents{2, 4, 5};
      auto* data = reinterpret_cast<std::byte*>(numbers.data());
      TensorView all = TensorView::contiguous(ElementType::Float, shape, data);
      caches[i].entry = {i == 0 ? "keys" : "values", ElementType::Float, axis, {}, {}};
      caches[i].parts = {sliceAxis(all, axis, 0, 3)};
      caches[i].entry.shape = caches[i].parts[0].shape;
    }
    return caches;
  }
  Bytes write(llvm::ArrayRef<int64_t> lengths, llvm::ArrayRef<StoredCache> caches) {
    llvm::cantFail(writeCacheFile(outputAt(path()), fingerprint, lengths, caches));
    EXPECT_EQ(filesInFolder(), 1u);
    return readAll(path());
  }

  std::vector<float> numbers = [] {
    std::vector<float> values(40);
    std::iota(values.begin(), values.end(), 0.0f);
    return values;
  }();
  fs::path folder;
  ModelFingerprint fingerprint{};
};

std::vector<float> floatsOf(const CacheFileContents::Cache& cache) {
  std::vector<float> values(cache.bytes.size() / sizeof(float));
  if (!values.empty())
    std::memcpy(values.data(), cache.bytes.data(), cache.bytes.size());
  return values;
}

TEST_F(CacheFileTest, IsReadBack) {
  Bytes file = write({3, 3}, twoCaches());
  CacheFileContents contents = llvm::cantFail(parseCacheFile(file));
  EXPECT_EQ(contents.fingerprint, fingerprint);
  EXPECT_EQ(contents.lengths, (std::vector<int64_t>{3, 3}));
  ASSERT_EQ(contents.caches.size(), 2u);
  const CacheFileEntry& entry = contents.caches[1].entry;
  EXPECT_EQ(entry.name, "values");
  EXPECT_EQ(entry.element, ElementType::Float);
  EXPECT_EQ(entry.shape, Extents({2, 4, 3}));
  EXPECT_EQ(entry.sequenceAxis, 2u);
  EXPECT_FALSE(entry.batchAxis);
  EXPECT_EQ(floatsOf(contents.caches[0]),
            (std::vector<float>{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}));
  EXPECT_EQ(floatsOf(contents.caches[1]),
            (std::vector<float>{0,  1,  2,  5,  6,  7,  10, 11, 12, 15, 16, 17,
                                20, 21, 22, 25, 26, 27, 30, 31, 32, 35, 36, 37}));
}

TEST_F(CacheFileTest, BatchRowsOfDifferentLengthsAreStoredApart) {
  std::vector<StoredCache> caches = twoCaches();
  caches.pop_back();
  TensorView rows = caches[0].parts[0];
  caches[0].entry.batchAxis = 0;
  caches[0].parts = {sliceAxis(sliceAxis(rows, 0, 0, 1), 1, 0, 1), sliceAxis(rows, 0, 1, 2)};
  Bytes file = write({1, 3}, caches);
  CacheFileContents contents = llvm::cantFail(parseCacheFile(file));
  EXPECT_EQ(contents.lengths, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(contents.caches[0].entry.batchAxis, 0u);
  EXPECT_EQ(floatsOf(contents.caches[0]),
            (std::vector<float>{0, 1, 2, 3, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}));
}

TEST_F(CacheFileTest, LongRunsAndShortOnesMakeTheSameFile) {
  // Longer than what is staged, contiguous and in single elements.
  std::vector<float> many(100'003 * 2);
  std::iota(many.begin(), many.end(), 0.0f);
  auto fileOf = [&](Extents shape, Extents strides) {
    StoredCache cache;
    cache.entry = {"c", ElementType::Float, 0, shape, {}};
    TensorView view{ElementType::Float, shape, strides, reinterpret_cast<std::byte*>(many.data())};
    cache.parts = {view};
    return write({100'003}, cache);
  };
  Bytes apart = fileOf({100'003}, {2});
  for (size_t i = 0; i < 100'003; ++i)
    many[i] = static_cast<float>(2 * i);
  EXPECT_TRUE(apart == fileOf({100'003}, {1}));
}

TEST_F(CacheFileTest, TheFixedPartsAreWhereTheSpecificationSays) {
  Bytes file = write({3, 3}, twoCaches());
  const uint8_t expected[] = {0x89, 'K', 'V', 'C', 0x0d, 0x0a, 0x1a, 0x0a, 2, 0, 0, 0, 4, 3, 2, 1};
  EXPECT_EQ(std::memcmp(file.data(), expected, sizeof(expected)), 0);
  uint64_t bytes = 0;
  std::memcpy(&bytes, file.data() + 16, 8);
  EXPECT_EQ(bytes, file.size());
  EXPECT_EQ(std::memcmp(file.data() + 32, fingerprint.data(), 32), 0);
  uint64_t checksum = 0;
  std::memcpy(&checksum, file.data() + 72, 8);
  EXPECT_EQ(checksum, Checksum::of(std::span(file).first(72)));
  // Header 80, index 24 + 2 * (8 + 24 + 24) + 10: the first section is at 256.
  std::memcpy(&checksum, file.data() + 256 + 96, 8);
  EXPECT_EQ(checksum, Checksum::of(std::span(file).subspan(256, 96)));
  EXPECT_EQ(file.size(), 384u + 96 + 8);
}

TEST_F(CacheFileTest, EveryTruncationIsRefused) {
  Bytes file = write({3, 3}, twoCaches());
  for (size_t size = 0; size < file.size(); ++size) {
    Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(refusal(cut), HasSubstr("hint: ")) << size;
    EXPECT_NE(refusal(cut, CacheFileChecks::StructureOnly), "") << size;
  }
  file.push_back(std::byte{0});
  EXPECT_THAT(refusal(file), HasSubstr("it has 489 bytes, not 488 as its header says"));
}

TEST_F(CacheFileTest, EveryFlippedBitIsFound) {
  Bytes file = write({3, 3}, twoCaches());
  for (size_t at = 0; at < file.size(); ++at)
    for (unsigned bit = 0; bit < 8; ++bit) {
      file[at] ^= std::byte(1u << bit);
      EXPECT_THAT(refusal(file), testing::Not("")) << at << "." << bit;
      // What the structure lets pass has to be in bounds; sanitizers look.
      if (auto contents = parseCacheFile(file, CacheFileChecks::StructureOnly))
        for (const CacheFileContents::Cache& cache : contents->caches)
          EXPECT_LE(cache.bytes.data() + cache.bytes.size(), file.data() + file.size());
      else
        llvm::consumeError(contents.takeError());
      file[at] ^= std::byte(1u << bit);
    }
  EXPECT_EQ(refusal(file), "");
}

TEST_F(CacheFileTest, NumbersOutOfRangeAreRefusedBeforeAnythingIsAllocated) {
  const Bytes file = write({3, 3}, twoCaches());
  const uint64_t values[] = {
      0,          1,          3,          0xff,      0xffff,     0x7fffffff,     0x80000000,
      0xffffffff, 1ull << 32, 1ull << 62, INT64_MAX, 1ull << 63, UINT64_MAX - 8, UINT64_MAX};
  for (size_t at = 8; at + 8 <= 256; ++at)
    for (uint64_t value : values)
      for (size_t width : {1u, 2u, 4u, 8u}) {
        Bytes changed = file;
        std::memcpy(changed.data() + at, &value, width);
        if (changed == file)
          continue;
        auto contents = parseCacheFile(changed, CacheFileChecks::StructureOnly);
        if (!contents) {
          llvm::consumeError(contents.takeError());
          continue;
        }
        for (const CacheFileContents::Cache& cache : contents->caches) {
          auto bytes = llvm::cantFail(storedBytes(cache.entry, contents->lengths));
          EXPECT_EQ(static_cast<uint64_t>(bytes), cache.bytes.size());
        }
      }
}

TEST_F(CacheFileTest, RefusalsSayWhatIsWrong) {
  const Bytes file = write({3, 3}, twoCaches());
  auto changed = [&](size_t at, uint8_t value) {
    Bytes copy = file;
    copy[at] = std::byte{value};
    return copy;
  };
  EXPECT_THAT(refusal({}), HasSubstr("this is not a cache file"));
  EXPECT_THAT(refusal(Bytes(300, std::byte{7})), HasSubstr("this is not a cache file"));
  EXPECT_THAT(refusal(changed(8, 3)), HasSubstr("its version is 3, not 2"));
  EXPECT_THAT(refusal(changed(12, 1)), HasSubstr("not little-endian"));
  EXPECT_THAT(refusal(changed(40, 77)), HasSubstr("the checksum of its header is wrong"));
  EXPECT_THAT(refusal(changed(90, 77)), HasSubstr("the checksum of its index is wrong"));
  EXPECT_THAT(refusal(changed(256, 77)), HasSubstr("the checksum of cache 'keys' is wrong"));
  EXPECT_THAT(refusal(changed(255, 77)), HasSubstr("something between its sections"));
}

TEST_F(CacheFileTest, AFullDiskLeavesNothingAndTheFormerFile) {
  const Bytes before = write({3, 3}, twoCaches());
  // A limit on the size of files is a disk that is full; it binds a process, so another one writes.
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    rlimit limit{300, 300};
    ::signal(SIGXFSZ, SIG_IGN);
    bool limited = ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
    std::string message =
        fileMessageOf(writeCacheFile(outputAt(path()), fingerprint, {3, 3}, twoCaches()));
    ::_exit(limited && llvm::StringRef(message).contains("cannot write") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(filesInFolder(), 1u);
  EXPECT_TRUE(readAll(path()) == before);
}

TEST_F(CacheFileTest, AFolderThatIsNotThereIsAnError) {
  std::string lost = (folder / "none" / "cache.kvc").string();
  EXPECT_THAT(fileMessageOf(createOutput(lost).takeError()), HasSubstr("cannot open the folder"));
}

} // namespace
} // namespace kvopt
