// XXH64: published values, LLVM's implementation, pieces.
#include "runtime/cache/checksum.h"

#include "llvm/Support/xxhash.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace kvopt {
using namespace runtime;

namespace {

std::vector<std::byte> randomBytes(size_t count) {
  std::mt19937_64 random(count);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(Checksum, PublishedValues) {
  EXPECT_EQ(Checksum::of({}), 0xef46db3751d8e999u);
  EXPECT_EQ(Checksum::of(std::as_bytes(std::span("abc", 3))), 0x44bc2cf5ad770999u);
}

TEST(Checksum, AgreesWithAnotherImplementation) {
  for (size_t count = 0; count < 200; ++count) {
    std::vector<std::byte> bytes = randomBytes(count);
    EXPECT_EQ(Checksum::of(bytes),
              llvm::xxHash64(llvm::StringRef(reinterpret_cast<const char*>(bytes.data()), count)))
        << count;
  }
}

TEST(Checksum, DoesNotDependOnPieces) {
  std::vector<std::byte> bytes = randomBytes(500);
  uint64_t whole = Checksum::of(bytes);
  for (size_t piece = 1; piece < 100; ++piece) {
    Checksum checksum;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      checksum.add(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
      checksum.add({});
      checksum.value(); // asking changes nothing
    }
    EXPECT_EQ(checksum.value(), whole) << piece;
  }
}

} // namespace
} // namespace kvopt
