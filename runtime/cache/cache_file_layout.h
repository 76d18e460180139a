// Fixed parts of a cache file as structures; docs/cache-file.md explains them.
#pragma once

#include "runtime/cache/cache_file.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvopt::runtime::cache_file {

// Structures are written in their memory layout.
static_assert(std::endian::native == std::endian::little);

/// As in PNG: reveals transfers that changed line endings or dropped eighth bits.
inline constexpr std::array<uint8_t, 8> magic = {0x89, 'K', 'V', 'C', '\r', '\n', 0x1a, '\n'};
inline constexpr uint32_t byteOrderMark = 0x01020304;
inline constexpr size_t sectionAlignment = 64;

struct Header {
  std::array<uint8_t, 8> magicBytes = magic;
  uint32_t version = cacheFileVersion;
  uint32_t byteOrder = byteOrderMark;
  uint64_t fileBytes = 0;
  uint64_t indexBytes = 0;
  ModelFingerprint fingerprint{};
  uint64_t indexChecksum = 0;
  /// Checksum of the preceding bytes.
  uint64_t headerChecksum = 0;
};
static_assert(sizeof(Header) == 80 && offsetof(Header, headerChecksum) == 72);

/// Record of a cache: this structure, `rank` extents (int64), a RecordTail, `nameBytes` bytes.
struct RecordHead {
  uint32_t element = 0;
  uint8_t rank = 0;
  uint8_t sequenceAxis = 0;
  uint8_t form = 0; ///< 0: one tensor; 1: separate batch rows
  uint8_t batchAxis = 0;
};
static_assert(sizeof(RecordHead) == 8);

struct RecordTail {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t nameBytes = 0;
};
static_assert(sizeof(RecordTail) == 24);

inline constexpr size_t smallestRecord = sizeof(RecordHead) + sizeof(RecordTail);

/// Requires that the result does not overflow.
inline constexpr size_t alignedUp(size_t offset) {
  return (offset + sectionAlignment - 1) / sectionAlignment * sectionAlignment;
}

} // namespace kvopt::runtime::cache_file
