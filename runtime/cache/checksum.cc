// XXH64, stripe by stripe.
#include "runtime/cache/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kvopt::runtime {
namespace {

constexpr uint64_t prime1 = 0x9E3779B185EBCA87;
constexpr uint64_t prime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t prime3 = 0x165667B19E3779F9;
constexpr uint64_t prime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t prime5 = 0x27D4EB2F165667C5;

/// Little-endian, as the specification reads them.
template <class T> T load(const std::byte* data) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

uint64_t round(uint64_t lane, uint64_t input) {
  return std::rotl(lane + input * prime2, 31) * prime1;
}

uint64_t merge(uint64_t hash, uint64_t lane) { return (hash ^ round(0, lane)) * prime1 + prime4; }

} // namespace

uint64_t Checksum::of(std::span<const std::byte> bytes) {
  Checksum checksum;
  checksum.add(bytes);
  return checksum.value();
}

void Checksum::addStripes(const std::byte* data, size_t count) {
  // Locals stay in registers.
  auto [a, b, c, d] = lanes;
  for (; count != 0; --count, data += stripeBytes) {
    a = round(a, load<uint64_t>(data));
    b = round(b, load<uint64_t>(data + 8));
    c = round(c, load<uint64_t>(data + 16));
    d = round(d, load<uint64_t>(data + 24));
  }
  lanes = {a, b, c, d};
}

void Checksum::add(std::span<const std::byte> bytes) {
  if (bytes.empty())
    return;
  total += bytes.size();
  if (pendingBytes != 0) {
    size_t taken = std::min(stripeBytes - pendingBytes, bytes.size());
    std::memcpy(pending.data() + pendingBytes, bytes.data(), taken);
    pendingBytes += taken;
    bytes = bytes.subspan(taken);
    if (pendingBytes < stripeBytes)
      return;
    addStripes(pending.data(), 1);
    pendingBytes = 0;
  }
  size_t stripes = bytes.size() / stripeBytes;
  addStripes(bytes.data(), stripes);
  bytes = bytes.subspan(stripes * stripeBytes);
  if (!bytes.empty())
    std::memcpy(pending.data(), bytes.data(), bytes.size());
  pendingBytes = bytes.size();
}

uint64_t Checksum::value() const {
  uint64_t hash = prime5;
  if (total >= stripeBytes) {
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
           std::rotl(lanes[3], 18);
    for (uint64_t lane : lanes)
      hash = merge(hash, lane);
  }
  hash += total;
  const std::byte* rest = pending.data();
  size_t left = pendingBytes;
  for (; left >= 8; left -= 8, rest += 8)
    hash = std::rotl(hash ^ round(0, load<uint64_t>(rest)), 27) * prime1 + prime4;
  if (left >= 4) {
    hash = std::rotl(hash ^ load<uint32_t>(rest) * prime1, 23) * prime2 + prime3;
    left -= 4;
    rest += 4;
  }
  for (; left != 0; --left, ++rest)
    hash = std::rotl(hash ^ std::to_integer<uint64_t>(*rest) * prime5, 11) * prime1;
  hash = (hash ^ hash >> 33) * prime2;
  hash = (hash ^ hash >> 29) * prime3;
  return hash ^ hash >> 32;
}

} // namespace kvopt::runtime
