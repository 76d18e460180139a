// Checksum: XXH64 with seed 0 of bytes in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// Compiles in the library's own functions, so that nothing is linked and the state is an ordinary
// object.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvopt::runtime {

/// XXH64 of xxHash with seed 0. The value does not depend on the division into pieces.
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
  /// Checksum of all bytes so far; more may be added afterwards.
  uint64_t value() const { return XXH64_digest(&state); }

private:
  XXH64_state_t state;
};

} // namespace kvopt::runtime
