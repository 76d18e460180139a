// The file that saved caches are in; docs/cache-file.md specifies it byte by byte.
#pragma once

#include "runtime/memory/tensor_view.h"

#include "llvm/Support/Error.h"

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvopt {
class OutputFile;
} // namespace kvopt

namespace kvopt::runtime {

/// What a model is recognized by; see runtime/cache/model_fingerprint.h.
using ModelFingerprint = std::array<uint8_t, 32>;

/// Version 1 recognized models by samples of their weights.
inline constexpr uint32_t cacheFileVersion = 2;

/// More tokens than any batch row has, so that sums of lengths cannot overflow.
inline constexpr int64_t mostStoredTokens = int64_t{1} << 48;

/// What the file says of one cache.
struct CacheFileEntry {
  std::string name; ///< of the model's input
  ir::ElementType element = ir::ElementType::Float;
  unsigned sequenceAxis = 0;
  /// Along the sequence axis the rows that are stored; those of the longest batch row where batch
  /// rows are stored apart.
  Extents shape;
  /// Set where batch rows are of different lengths: batch rows follow each other on this axis, and
  /// each is stored by itself with as many tokens as it has.
  std::optional<unsigned> batchAxis;
};

/// A cache to be written: one strided view, or one for each batch row.
struct StoredCache {
  CacheFileEntry entry;
  llvm::SmallVector<TensorView, 1> parts;
  std::shared_ptr<const void> owner; ///< of parts that are a copy
};

struct CacheFileContents {
  struct Cache {
    CacheFileEntry entry;
    /// The elements, row-major, batch row after batch row if those are stored apart. Points into
    /// the file.
    std::span<const std::byte> bytes;
  };

  ModelFingerprint fingerprint{};
  /// Tokens of every batch row.
  std::vector<int64_t> lengths;
  std::vector<Cache> caches;
};

enum class CacheFileChecks {
  All,
  /// All but the checksums, so that random bytes come further.
  StructureOnly,
};

/// Reads a whole file, which may be anything: what is returned is in bounds, and names, extents,
/// lengths and numbers of bytes agree with each other. Errors say what is wrong. Memory and time
/// are linear in the file's size.
llvm::Expected<CacheFileContents> parseCacheFile(std::span<const std::byte> file,
                                                 CacheFileChecks checks = CacheFileChecks::All);

/// Writes the file and puts it in its place. The caches must be such that the file can be read
/// back: one batch row at least, extents and lengths that agree.
llvm::Error writeCacheFile(OutputFile file, const ModelFingerprint& fingerprint,
                           llvm::ArrayRef<int64_t> lengths, llvm::ArrayRef<StoredCache> caches);

/// Bytes of an entry's elements; an error where its extents make no sense.
llvm::Expected<int64_t> storedBytes(const CacheFileEntry& entry, llvm::ArrayRef<int64_t> lengths);

} // namespace kvopt::runtime
