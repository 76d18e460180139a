// Any bytes as a file of saved caches.
#include "runtime/cache/cache_file.h"
#include "support/diagnostic.h"

#include <cstdio>
#include <cstdlib>

namespace {

void mustHold(bool holds, const char* what) {
  if (holds)
    return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

/// What was accepted is in bounds, and all of its numbers agree.
void exercise(std::span<const std::byte> file, const kvopt::runtime::CacheFileContents& contents) {
  using namespace kvopt;
  using namespace kvopt::runtime;
  mustHold(!contents.lengths.empty(), "no batch row");
  for (const CacheFileContents::Cache& cache : contents.caches) {
    auto expected = storedBytes(cache.entry, contents.lengths);
    mustHold(static_cast<bool>(expected), "extents that make no sense");
    mustHold(*expected == static_cast<int64_t>(cache.bytes.size()), "another number of bytes");
    mustHold(cache.entry.sequenceAxis < cache.entry.shape.size(), "no sequence axis");
    mustHold(cache.bytes.empty() ||
                 (cache.bytes.data() >= file.data() &&
                  cache.bytes.data() + cache.bytes.size() <= file.data() + file.size()),
             "out of the file");
    volatile unsigned sum = 0;
    for (std::byte byte : cache.bytes)
      sum = sum + std::to_integer<unsigned>(byte);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvopt;
  using namespace kvopt::runtime;
  const auto file = std::as_bytes(std::span<const uint8_t>(data, size));
  bool isStructured = false;
  // Without checksums mutations come further; with them nothing else may be accepted.
  for (CacheFileChecks checks : {CacheFileChecks::StructureOnly, CacheFileChecks::All}) {
    auto contents = parseCacheFile(file, checks);
    if (!contents) {
      mustHold(!takeDiagnostic(contents.takeError()).message.empty(),
               "a refusal without a message");
      continue;
    }
    mustHold(isStructured || checks == CacheFileChecks::StructureOnly, "checks that let more pass");
    isStructured = true;
    exercise(file, *contents);
  }
  return 0;
}
