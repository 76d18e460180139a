// Reading and checking of cache files.
#include "runtime/cache/cache_file.h"

#include "ir/tensor.h"
#include "runtime/cache/cache_file_layout.h"
#include "runtime/cache/checksum.h"
#include "support/diagnostic.h"

#include "llvm/ADT/StringSet.h"

#include <cstring>

namespace kvopt::runtime {
using namespace ir;

using namespace cache_file;

namespace {

constexpr const char* damaged = "the file is damaged: save the cache again";

DiagnosticBuilder broken(const char* what) { return invalid("cache file: {}", what).hint(damaged); }

/// Reads numbers from the front of bytes.
class Cursor {
public:
  explicit Cursor(std::span<const std::byte> bytes) : rest(bytes) {}

  template <class T> bool read(T& value) {
    if (rest.size() < sizeof(T))
      return false;
    std::memcpy(&value, rest.data(), sizeof(T));
    rest = rest.subspan(sizeof(T));
    return true;
  }
  bool read(std::string& text, size_t bytes) {
    if (rest.size() < bytes)
      return false;
    text.assign(reinterpret_cast<const char*>(rest.data()), bytes);
    rest = rest.subspan(bytes);
    return true;
  }
  size_t left() const { return rest.size(); }

private:
  std::span<const std::byte> rest;
};

class Parser {
public:
  Parser(std::span<const std::byte> bytes, CacheFileChecks wantedChecks)
      : file(bytes), checks(wantedChecks) {}

  llvm::Expected<CacheFileContents> run() {
    if (llvm::Error error = readHeader())
      return error;
    if (llvm::Error error = readIndex())
      return error;
    if (end != file.size())
      return broken("it is longer than its sections");
    return std::move(contents);
  }

private:
  bool matches(std::span<const std::byte> bytes, uint64_t checksum) const {
    return checks == CacheFileChecks::StructureOnly || Checksum::of(bytes) == checksum;
  }

  bool isZero(size_t from, size_t to) const {
    for (size_t i = from; i < to; ++i)
      if (file[i] != std::byte{0})
        return false;
    return true;
  }

  llvm::Error readHeader() {
    if (file.size() < magic.size() || std::memcmp(file.data(), magic.data(), magic.size()) != 0)
      return invalid("this is not a cache file").hint("give a file that a session was saved to");
    Header header;
    if (file.size() < sizeof(header))
      return broken("it ends within its header");
    std::memcpy(&header, file.data(), sizeof(header));
    if (header.version != cacheFileVersion)
      return invalid("cache file: its version is {}, not {}", header.version, cacheFileVersion)
          .hint("save the cache again with this version of kvopt");
    if (header.byteOrder != byteOrderMark)
      return invalid("cache file: its numbers are not little-endian").hint(damaged);
    if (!matches(file.first(offsetof(Header, headerChecksum)), header.headerChecksum))
      return broken("the checksum of its header is wrong");
    if (header.fileBytes != file.size())
      return invalid("cache file: it has {} bytes, not {} as its header says", file.size(),
                     header.fileBytes)
          .hint(damaged);
    if (header.indexBytes > file.size() - sizeof(header))
      return broken("its index does not fit into it");
    index = file.subspan(sizeof(header), static_cast<size_t>(header.indexBytes));
    if (!matches(index, header.indexChecksum))
      return broken("the checksum of its index is wrong");
    contents.fingerprint = header.fingerprint;
    end = sizeof(header) + index.size();
    return llvm::Error::success();
  }

  llvm::Error readIndex() {
    Cursor cursor(index);
    uint32_t rows = 0;
    uint32_t count = 0;
    if (!cursor.read(rows) || !cursor.read(count))
      return broken("its index is cut off");
    // Memory is allocated only for records that fit into the rest of the index.
    if (rows == 0 || rows > cursor.left() / sizeof(int64_t))
      return broken("its number of batch rows is wrong");
    for (uint32_t row = 0; row < rows; ++row) {
      int64_t length = 0;
      cursor.read(length);
      if (length < 0 || length > mostStoredTokens)
        return broken("a length is out of range");
      contents.lengths.push_back(length);
    }
    if (count > cursor.left() / smallestRecord)
      return broken("its number of caches is wrong");
    llvm::StringSet<> names;
    for (uint32_t i = 0; i < count; ++i) {
      if (llvm::Error error = readCache(cursor))
        return error;
      if (!names.insert(contents.caches.back().entry.name).second)
        return broken("it holds a cache twice");
    }
    if (cursor.left() != 0)
      return broken("its index is longer than what is in it");
    return llvm::Error::success();
  }

  llvm::Error readCache(Cursor& cursor) {
    RecordHead head;
    if (!cursor.read(head) || cursor.left() / sizeof(int64_t) < head.rank)
      return broken("its index is cut off");
    CacheFileContents::Cache cache;
    CacheFileEntry& entry = cache.entry;
    entry.element = static_cast<ElementType>(head.element);
    entry.sequenceAxis = head.sequenceAxis;
    if (head.form > 1 || (head.form == 0 && head.batchAxis != 0))
      return broken("a cache has a form that does not exist");
    if (head.form == 1)
      entry.batchAxis = head.batchAxis;
    for (unsigned axis = 0; axis < head.rank; ++axis) {
      int64_t extent = 0;
      cursor.read(extent);
      entry.shape.push_back(extent);
    }
    RecordTail tail;
    if (!cursor.read(tail) || !cursor.read(entry.name, tail.nameBytes))
      return broken("its index is cut off");
    llvm::Expected<int64_t> bytes = storedBytes(entry, contents.lengths);
    if (!bytes)
      return withFormat(bytes.takeError(), entry.name);
    if (tail.bytes != static_cast<uint64_t>(*bytes))
      return broken("the size of a section is not that of its elements");
    return readSection(cache, tail);
  }

  static llvm::Error withFormat(llvm::Error error, llvm::StringRef name) {
    return invalid("cache file: cache '{}': {}", name, takeDiagnostic(std::move(error)).message)
        .hint(damaged);
  }

  llvm::Error readSection(CacheFileContents::Cache& cache, const RecordTail& tail) {
    size_t start = alignedUp(end);
    // `end` is within the file, so rounding it up cannot overflow. It is compared before anything
    // is added.
    if (start > file.size() || tail.offset != start)
      return broken("a section is not where it belongs");
    if (file.size() - start < sizeof(uint64_t) ||
        tail.bytes > file.size() - start - sizeof(uint64_t))
      return broken("a section does not fit into it");
    if (!isZero(end, start))
      return broken("there is something between its sections");
    cache.bytes = file.subspan(start, static_cast<size_t>(tail.bytes));
    uint64_t checksum = 0;
    std::memcpy(&checksum, cache.bytes.data() + cache.bytes.size(), sizeof(checksum));
    if (!matches(cache.bytes, checksum))
      return invalid("cache file: the checksum of cache '{}' is wrong", cache.entry.name)
          .hint(damaged);
    end = start + cache.bytes.size() + sizeof(checksum);
    contents.caches.push_back(std::move(cache));
    return llvm::Error::success();
  }

  std::span<const std::byte> file;
  CacheFileChecks checks;
  std::span<const std::byte> index;
  /// End of the section that was read last
  size_t end = 0;
  CacheFileContents contents;
};

} // namespace

llvm::Expected<CacheFileContents> parseCacheFile(std::span<const std::byte> file,
                                                 CacheFileChecks checks) {
  return Parser(file, checks).run();
}

llvm::Expected<int64_t> storedBytes(const CacheFileEntry& entry, llvm::ArrayRef<int64_t> lengths) {
  std::optional<unsigned> width = byteWidth(entry.element);
  if (!width)
    return invalid("its element type {} has no form in memory", static_cast<int>(entry.element));
  if (entry.sequenceAxis >= entry.shape.size())
    return invalid("its sequence axis is none of its axes");
  llvm::Expected<int64_t> elements = checkedElementCount(entry.shape);
  if (!elements)
    return elements.takeError();
  if (entry.batchAxis) {
    if (*entry.batchAxis >= entry.shape.size() || *entry.batchAxis == entry.sequenceAxis)
      return invalid("its batch axis is none of its axes");
    auto rows = static_cast<int64_t>(lengths.size());
    if (entry.shape[*entry.batchAxis] % rows != 0)
      return invalid("its batch rows are not equally large");
    // The product of all extents fits, so products of some of them fit if no extent is 0.
    int64_t perToken = 1;
    for (unsigned axis = 0; axis < entry.shape.size(); ++axis) {
      int64_t extent = axis == entry.sequenceAxis ? 1 : entry.shape[axis];
      if (__builtin_mul_overflow(perToken, axis == *entry.batchAxis ? extent / rows : extent,
                                 &perToken))
        return invalid("it is too large");
    }
    int64_t all = 0;
    for (int64_t length : lengths) {
      int64_t part = 0;
      if (length > entry.shape[entry.sequenceAxis])
        return invalid("a batch row is longer than the cache");
      if (__builtin_mul_overflow(perToken, length, &part) ||
          __builtin_add_overflow(all, part, &all))
        return invalid("it is too large");
    }
    *elements = all;
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(*elements, int64_t{*width}, &bytes))
    return invalid("it is too large");
  return bytes;
}

} // namespace kvopt::runtime
