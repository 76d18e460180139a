// CacheStorage: where the rows of a cache are between two steps, and what a step does to them.
#pragma once

#include "ir/cache_update.h"

#include <string>
#include <variant>
#include <vector>

namespace kvopt::ir {

/// The output has the input's rows and, after them, the new ones. It is the next step's input.
struct GrowingCache {
  /// The output has the new rows only, and the caller appends them to the input's.
  bool givesNewRows = false;

  bool operator==(const GrowingCache&) const = default;
};

/// Input and output are one buffer with room for Manifest::capacityValue rows. The model writes new
/// rows after the valid ones.
struct BufferCache {
  bool operator==(const BufferCache&) const = default;
};

/// Input and output are one pool [blocks, Manifest::blockSize, heads, width]. The cache, whose
/// `shape` is [batch, capacity, heads, width], is in the blocks that LengthFeed::BlockTable lists
/// for each batch row.
struct PoolCache {
  bool operator==(const PoolCache&) const = default;
};

/// The last rows only: position p is in row p modulo the number of rows.
struct RingCache {
  bool isOneBuffer = false; ///< input and output are one buffer

  bool operator==(const RingCache&) const = default;
};

/// A fixed number of rows, which the model writes where its own inputs say.
struct StaticCache {
  bool isOneBuffer = false; ///< input and output are one buffer

  bool operator==(const StaticCache&) const = default;
};

/// The rows are in blocks, each an input of the model, and the output has the new rows only.
/// ManifestCache::past is then the cache's former name. The sequence axis of `shape` is that of one
/// block, which holds from 0 to Manifest::blockSize rows.
struct BlockCache {
  std::vector<std::string> inputs; ///< in the order of their tokens

  bool operator==(const BlockCache&) const = default;
};

/// Each step replaces it as a whole: a recurrent or convolution state.
struct StateCache {
  bool operator==(const StateCache&) const = default;
};

/// Computed outside of the model, which only reads it.
struct ReadOnlyCache {
  bool operator==(const ReadOnlyCache&) const = default;
};

using CacheStorage = std::variant<GrowingCache, BufferCache, PoolCache, RingCache, StaticCache,
                                  BlockCache, StateCache, ReadOnlyCache>;

/// How the cache changes from step to step: one of Grows, Ring, Static, Blocks, State and ReadOnly.
CacheUpdate updateOf(const CacheStorage& storage);

/// Whether input and output are one buffer.
bool isOneBuffer(const CacheStorage& storage);

/// The storage of a cache that changes like this and whose input and output are two tensors. Caches
/// in blocks have no inputs yet.
CacheStorage storageOf(CacheUpdate update);

/// The same with input and output in one buffer. Storage whose rows do not stay where they are has
/// no such form, and is returned as it is.
CacheStorage inOneBuffer(const CacheStorage& storage);

} // namespace kvopt::ir
