// CacheUpdate: how a cache changes from step to step.
#pragma once

namespace kvopt::ir {

enum class CacheUpdate {
  None,     ///< there is no cache
  Unproved, ///< earlier steps are read, but how they are kept is not proved
  Grows,    ///< new rows behind the old ones
  /// Grows within one buffer of past and present: what a model asks of its driver. A single cache
  /// grows, and says apart from that whether it is one buffer, as other caches may be, too.
  InPlace,
  Ring,     ///< the last rows only
  Static,   ///< as many rows as there is room for; the model writes where its inputs say
  Blocks,   ///< grows, in blocks
  State,    ///< as a whole: a recurrent or convolution state, or what a model keeps to itself
  ReadOnly, ///< not at all: computed outside, and only read
};

} // namespace kvopt::ir
