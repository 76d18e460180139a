// Files of saved caches that are whole by their checksums and wrong in one field.
#pragma once

#include "runtime/cache/cache_file.h"
#include "runtime/session/session.h"
#include "support/diagnostic.h"
#include "support/mapped_file.h"
#include "tests/support/output_at.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace kvopt::test {

/// A saved file in parts that can be changed one by one.
class SavedCaches {
public:
  explicit SavedCaches(const std::string& path) {
    const auto file = llvm::cantFail(MappedFile::open(path));
    runtime::CacheFileContents contents = llvm::cantFail(runtime::parseCacheFile(file->bytes()));
    fingerprint = contents.fingerprint;
    lengths = contents.lengths;
    for (const runtime::CacheFileContents::Cache& cache : contents.caches)
      caches.push_back({cache.entry, {cache.bytes.begin(), cache.bytes.end()}});
  }

  /// Changes one field so that the file fits no session of the model that it was saved from, and
  /// says which; empty where the field cannot be changed in that way.
  std::string forge(std::mt19937_64& random, const ir::Manifest& manifest) {
    auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
    Cache& cache = caches[below(caches.size())];
    switch (below(10)) {
    case 0:
      fingerprint[below(fingerprint.size())] ^= static_cast<uint8_t>(1u << below(8));
      return "fingerprint";
    case 1:
      lengths.push_back(lengths.front());
      return "one more batch row";
    case 2:
      return forgeLength(random, manifest);
    case 3:
      return resize(cache, cache.entry.sequenceAxis, manifest, random);
    case 4: {
      const size_t axis = below(cache.entry.shape.size());
      return axis == cache.entry.sequenceAxis ? "" : resize(cache, axis, manifest, random);
    }
    case 5:
      cache.entry.sequenceAxis =
          (cache.entry.sequenceAxis + 1) % static_cast<unsigned>(cache.entry.shape.size());
      return "sequence axis";
    case 6:
      cache.entry.element = cache.entry.element == ir::ElementType::Float  ? ir::ElementType::Int32
                            : cache.entry.element == ir::ElementType::Int8 ? ir::ElementType::UInt8
                                                                           : ir::ElementType::Float;
      cache.bytes.resize(
          static_cast<size_t>(llvm::cantFail(runtime::storedBytes(cache.entry, lengths))));
      return "element type";
    case 7:
      cache.entry.name += "x";
      return "name";
    case 8:
      if (caches.size() == 1)
        return "";
      caches.pop_back();
      return "missing cache";
    default:
      return forgeScale(cache, manifest, random);
    }
  }

  void write(const std::string& path) const {
    std::vector<runtime::StoredCache> stored;
    for (const Cache& cache : caches) {
      runtime::StoredCache part;
      part.entry = cache.entry;
      auto* bytes = const_cast<std::byte*>(cache.bytes.data()); // NOLINT: only read
      part.parts.push_back(runtime::TensorView::contiguous(
          ir::ElementType::UInt8, {static_cast<int64_t>(cache.bytes.size())}, bytes));
      stored.push_back(std::move(part));
    }
    llvm::cantFail(runtime::writeCacheFile(outputAt(path), fingerprint, lengths, stored));
  }

private:
  struct Cache {
    runtime::CacheFileEntry entry;
    std::vector<std::byte> bytes;
  };

  static const ir::ManifestCache* describe(const Cache& cache, const ir::Manifest& manifest) {
    for (const ir::ManifestCache& each : manifest.caches)
      if (each.past == cache.entry.name)
        return &each;
    return nullptr;
  }

  /// A number of tokens that the stored rows are not those of.
  std::string forgeLength(std::mt19937_64& random, const ir::Manifest& manifest) {
    const bool countsTokens = llvm::any_of(caches, [&](const Cache& cache) {
      const ir::ManifestCache* described = describe(cache, manifest);
      return described && (described->update() == ir::CacheUpdate::Grows ||
                           described->update() == ir::CacheUpdate::Blocks);
    });
    const int64_t others[] = {0, lengths.front() - 1, lengths.front() + 1, int64_t{1} << 40,
                              runtime::mostStoredTokens};
    // States say nothing of how many tokens made them; of rings and static caches nobody can tell
    // a few tokens more or less.
    const int64_t length = countsTokens ? others[random() % 5] : others[3 + random() % 2];
    const bool onlyStates = llvm::all_of(caches, [&](const Cache& cache) {
      const ir::ManifestCache* described = describe(cache, manifest);
      return described && (described->update() == ir::CacheUpdate::State ||
                           described->update() == ir::CacheUpdate::Ring);
    });
    if (onlyStates || length == lengths.front())
      return "";
    for (const Cache& cache : caches)
      if (cache.entry.batchAxis)
        return "";
    std::fill(lengths.begin(), lengths.end(), length);
    return "length " + std::to_string(length);
  }

  std::string resize(Cache& cache, size_t axis, const ir::Manifest& manifest,
                     std::mt19937_64& random) const {
    const ir::ManifestCache* described = describe(cache, manifest);
    const int64_t extent = cache.entry.shape[axis];
    int64_t other = random() % 2 == 0 ? extent + 1 : std::max<int64_t>(0, extent - 1);
    if (axis == cache.entry.sequenceAxis && described) {
      // Rows of zeros at the end of a static cache may be stored or not.
      if (described->update() == ir::CacheUpdate::Static)
        other = 0;
      // Between its first row and its width a ring has any number of rows.
      if (described->update() == ir::CacheUpdate::Ring)
        other = lengths.front() + 1000;
    }
    if (other == extent || cache.entry.batchAxis)
      return "";
    cache.entry.shape[axis] = other;
    cache.bytes.resize(
        static_cast<size_t>(llvm::cantFail(runtime::storedBytes(cache.entry, lengths))));
    return "extent of axis " + std::to_string(axis);
  }

  static std::string forgeScale(Cache& cache, const ir::Manifest& manifest,
                                std::mt19937_64& random) {
    const ir::ManifestCache* described = describe(cache, manifest);
    if (!described || !ir::isScale(described->role) || cache.bytes.size() < sizeof(float))
      return "";
    const float scales[] = {-1.0f, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()};
    const float scale = scales[random() % 3];
    const size_t count = cache.bytes.size() / sizeof(float);
    std::memcpy(cache.bytes.data() + random() % count * sizeof(float), &scale, sizeof(scale));
    return "scale";
  }

  runtime::ModelFingerprint fingerprint{};
  std::vector<int64_t> lengths;
  std::vector<Cache> caches;
};

/// Saves the session, forges that many files from it, and expects of each that the session refuses
/// it and stays as it was. Returns how many were forged.
inline size_t expectForgeriesRefused(runtime::Session& session, const std::string& folder,
                                     size_t count) {
  const std::string saved = folder + "/saved.kv";
  const std::string forged = folder + "/forged.kv";
  llvm::cantFail(session.save(saved));
  const SavedCaches original(saved);
  std::mt19937_64 random(count);
  size_t made = 0;
  for (size_t attempt = 0; attempt < 4 * count && made < count; ++attempt) {
    SavedCaches changed = original;
    const std::string what = changed.forge(random, session.manifest());
    if (what.empty())
      continue;
    ++made;
    changed.write(forged);
    const int64_t before = session.length();
    if (llvm::Error error = session.load(forged)) {
      EXPECT_NE(takeDiagnostic(std::move(error)).message, "") << what;
    } else {
      ADD_FAILURE() << "accepted: " << what;
      llvm::cantFail(session.load(saved));
    }
    EXPECT_EQ(session.length(), before) << what;
  }
  llvm::cantFail(session.load(saved));
  return made;
}

} // namespace kvopt::test
