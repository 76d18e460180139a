// Ten rounds of two 32-bit multiplications each.
#include "runtime/kernels/support/philox.h"

namespace kvopt::kernels {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr int rounds = 10;
  auto [c0, c1, c2, c3] = counter;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * c0;
    const uint64_t second = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(second >> 32) ^ c1 ^ key[0];
    c1 = static_cast<uint32_t>(second);
    c2 = static_cast<uint32_t>(first >> 32) ^ c3 ^ key[1];
    c3 = static_cast<uint32_t>(first);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

} // namespace kvopt::kernels
