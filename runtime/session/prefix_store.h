// PrefixStore: rows of caches by the tokens that made them, for sessions that begin alike.
#pragma once

#include "runtime/session/cache_state.h"

#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace kvopt::runtime {

struct PrefixStoreOptions {
  int64_t blockTokens = 64;             ///< tokens that are kept, and found, together
  int64_t mostBytes = int64_t{1} << 30; ///< of rows; what was used longest ago goes first
};

struct PrefixStoreStatistics {
  int64_t blocks = 0; ///< kept now
  int64_t bytes = 0;  ///< of their rows
  int64_t hits = 0;   ///< blocks that were found
  int64_t misses = 0; ///< blocks that were looked for and not found
  int64_t evicted = 0;
};

/// Shared by sessions of any models, in any threads. A prefix is a chain of blocks: a block is
/// found by the one before it and by its own tokens, which are compared, so that no hash decides
/// what a session goes on from. Rows are those of the session that kept them, bit for bit.
class PrefixStore {
public:
  explicit PrefixStore(PrefixStoreOptions settings = {}) : options(settings) {}
  ~PrefixStore();

  /// Keeps the rows of the whole blocks of `tokens`, which are the first that `session` has seen.
  /// `context` stands for whatever else its rows depend on, as an encoded sequence: prefixes of
  /// different contexts have nothing in common. A usage error for batches, for caches that do
  /// not hold a row for each token, and for tokens from before others were dropped
  /// (CacheState::intactTokens).
  llvm::Error keep(const CacheState& caches, llvm::ArrayRef<int64_t> tokens, uint64_t context = 0);

  /// Brings an empty session to the longest prefix of `tokens` that was kept, without the last one,
  /// whose scores are wanted; how many tokens that is. Errors as of `keep`, and of
  /// CacheState::seed.
  llvm::Expected<int64_t> restore(CacheState& caches, llvm::ArrayRef<int64_t> tokens,
                                  uint64_t context = 0);

  PrefixStoreStatistics statistics() const;

private:
  struct Block;
  /// Where a block stands: behind which other one, 0 for none, and of which tokens.
  struct Place {
    uint64_t before = 0;
    ModelFingerprint model{}; ///< of a first block
    uint64_t context = 0;     ///< of a first block
    std::vector<int64_t> tokens;

    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const;
  };
  using Blocks = std::list<std::shared_ptr<const Block>>;

  Place placeOf(const CacheState& caches, llvm::ArrayRef<int64_t> tokens, size_t index,
                uint64_t before, uint64_t context) const;
  /// The known blocks that `tokens` begin with. The lock is held.
  std::vector<std::shared_ptr<const Block>> find(const CacheState& caches,
                                                 llvm::ArrayRef<int64_t> tokens, uint64_t context);
  /// Behind `before` in a chain, null for none; false where that is gone. The lock is held.
  bool insert(const std::shared_ptr<const Block>& block, const Block* before);

  PrefixStoreOptions options;
  mutable std::mutex guard;
  Blocks recent; ///< the latest used first; a block comes before those behind it in a chain
  std::unordered_map<Place, Blocks::iterator, PlaceHash> places;
  uint64_t lastNumber = 0;
  PrefixStoreStatistics counters;
};

} // namespace kvopt::runtime
