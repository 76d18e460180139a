// Checksum: XXH64 with seed 0 of bytes that come in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// The library's own functions, compiled in: nothing is linked, and the state is an ordinary object.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvopt::runtime {

/// The XXH64 of xxHash, seed 0. The value does not depend on how the bytes are cut into pieces.
class Checksum {
public:
  Checksum() { XXH64_reset(&state, 0); }

  static uint64_t of(std::span<const std::byte> bytes) {
    return XXH64(bytes.data(), bytes.size(), 0);
  }

  void add(std::span<const std::byte> bytes) {
    if (!bytes.empty())
      XXH64_update(&state, bytes.data(), bytes.size());
  }
  /// Of everything added so far; more may be added afterwards.
  uint64_t value() const { return XXH64_digest(&state); }

private:
  XXH64_state_t state;
};

} // namespace kvopt::runtime
