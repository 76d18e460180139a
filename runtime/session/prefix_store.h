// PrefixStore: rows of caches by the tokens that produced them, for sessions with a common prefix.
#pragma once

#include "runtime/session/cache_state.h"

#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace kvopt::runtime {

struct PrefixStoreOptions {
  int64_t blockTokens = 64; ///< number of tokens that are stored and found together
  int64_t mostBytes =
      int64_t{1} << 30; ///< size of the rows; least recently used blocks are evicted first
};

struct PrefixStoreStatistics {
  int64_t blocks = 0; ///< number of blocks in the store
  int64_t bytes = 0;  ///< size of their rows
  int64_t hits = 0;   ///< number of blocks that were found
  int64_t misses = 0; ///< number of blocks that were looked up and not found
  int64_t evicted = 0;
};

/// May be shared by sessions of any models, in any threads. A prefix is a chain of blocks: a block
/// is found by its predecessor and its own tokens, which are compared, so that a hash collision
/// cannot give a session wrong rows. Rows are those of the session that stored them, bit for bit.
class PrefixStore {
public:
  explicit PrefixStore(PrefixStoreOptions settings = {}) : options(settings) {}
  ~PrefixStore();

  /// Stores the rows of the complete blocks of `tokens`, the first tokens of `session`. `context`
  /// identifies everything else that determines its rows, such as an encoded sequence: prefixes of
  /// different contexts share no blocks. A usage error for batches, for caches without a row for
  /// each token, and for tokens before dropped ones (CacheState::intactTokens).
  llvm::Error keep(const CacheState& caches, llvm::ArrayRef<int64_t> tokens, uint64_t context = 0);

  /// Fills an empty session with the longest stored prefix of `tokens` except the last one, whose
  /// scores are needed. Returns the number of its tokens. Fails like `keep` and CacheState::seed.
  llvm::Expected<int64_t> restore(CacheState& caches, llvm::ArrayRef<int64_t> tokens,
                                  uint64_t context = 0);

  PrefixStoreStatistics statistics() const;

private:
  struct Block;
  /// Key of a block: its predecessor, 0 for none, and its tokens.
  struct Place {
    uint64_t before = 0;
    ModelFingerprint model{}; ///< model of the first block in a chain
    uint64_t context = 0;     ///< context of the first block in a chain
    std::vector<int64_t> tokens;

    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const;
  };
  using Blocks = std::list<std::shared_ptr<const Block>>;

  Place placeOf(const CacheState& caches, llvm::ArrayRef<int64_t> tokens, size_t index,
                uint64_t before, uint64_t context) const;
  /// Stored blocks at the start of `tokens`. The lock is held.
  std::vector<std::shared_ptr<const Block>> find(const CacheState& caches,
                                                 llvm::ArrayRef<int64_t> tokens, uint64_t context);
  /// Inserts a block after `before` in a chain (null for none). False if `before` was evicted. The
  /// lock is held.
  bool insert(const std::shared_ptr<const Block>& block, const Block* before);

  PrefixStoreOptions options;
  mutable std::mutex guard;
  Blocks recent; ///< most recently used first; a block comes before its successors in a chain
  std::unordered_map<Place, Blocks::iterator, PlaceHash> places;
  uint64_t lastNumber = 0;
  PrefixStoreStatistics counters;
};

} // namespace kvopt::runtime
