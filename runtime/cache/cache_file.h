// File format of saved caches; docs/cache-file.md specifies every byte.
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

/// Identifies a model; see runtime/cache/model_fingerprint.h.
using ModelFingerprint = std::array<uint8_t, 32>;

/// Version 1 identified models by samples of their weights.
inline constexpr uint32_t cacheFileVersion = 2;

/// More tokens than any batch row has; prevents overflow of sums of lengths.
inline constexpr int64_t mostStoredTokens = int64_t{1} << 48;

/// Description of one cache in the file.
struct CacheFileEntry {
  std::string name; ///< name of the model's input
  ir::ElementType element = ir::ElementType::Float;
  unsigned sequenceAxis = 0;
  /// The extent of the sequence axis is the number of stored rows; if batch rows are stored
  /// separately, that of the longest batch row.
  Extents shape;
  /// Set if batch rows have different lengths. They follow each other on this axis, and each is
  /// stored separately with its own number of tokens.
  std::optional<unsigned> batchAxis;
};

/// A cache to be written: one strided view, or one for each batch row.
struct StoredCache {
  CacheFileEntry entry;
  llvm::SmallVector<TensorView, 1> parts;
  std::shared_ptr<const void> owner; ///< keeps copied parts alive
};

struct CacheFileContents {
  struct Cache {
    CacheFileEntry entry;
    /// Elements in row-major order; if batch rows are stored separately, one after another. Points
    /// into the file.
    std::span<const std::byte> bytes;
  };

  ModelFingerprint fingerprint{};
  /// Number of tokens of each batch row.
  std::vector<int64_t> lengths;
  std::vector<Cache> caches;
};

enum class CacheFileChecks {
  All,
  /// All checks except checksums, so that fuzzed input reaches more code.
  StructureOnly,
};

/// Parses a whole file from an untrusted source. The result is in bounds, and names, extents,
/// lengths and sizes agree with each other. Errors describe the problem. Memory and time are linear
/// in the size of the file.
llvm::Expected<CacheFileContents> parseCacheFile(std::span<const std::byte> file,
                                                 CacheFileChecks checks = CacheFileChecks::All);

/// Writes the file and puts it in place. The caches must be readable afterwards: at least one batch
/// row, and consistent extents and lengths.
llvm::Error writeCacheFile(OutputFile file, const ModelFingerprint& fingerprint,
                           llvm::ArrayRef<int64_t> lengths, llvm::ArrayRef<StoredCache> caches);

/// Size of an entry's elements in bytes; an error if its extents are invalid.
llvm::Expected<int64_t> storedBytes(const CacheFileEntry& entry, llvm::ArrayRef<int64_t> lengths);

} // namespace kvopt::runtime
