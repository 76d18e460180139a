// Checksum: XXH64 with seed 0 of bytes that come in pieces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvopt::runtime {

/// XXH64 as its author specifies it (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), seed 0. The
/// value does not depend on how the bytes are cut into pieces.
class Checksum {
public:
  static uint64_t of(std::span<const std::byte> bytes);

  void add(std::span<const std::byte> bytes);
  /// Of everything added so far; more may be added afterwards.
  uint64_t value() const;

private:
  static constexpr size_t stripeBytes = 32;

  void addStripes(const std::byte* data, size_t count);

  std::array<uint64_t, 4> lanes{prime1 + prime2, prime2, 0, 0 - prime1};
  std::array<std::byte, stripeBytes> pending{};
  size_t pendingBytes = 0;
  uint64_t total = 0;

  static constexpr uint64_t prime1 = 0x9E3779B185EBCA87;
  static constexpr uint64_t prime2 = 0xC2B2AE3D27D4EB4F;
};

} // namespace kvopt::runtime
