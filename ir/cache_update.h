// CacheUpdate: how a cache changes from step to step.
#pragma once

namespace kvopt::ir {

enum class CacheUpdate {
  None,     ///< there is no cache
  Unproved, ///< earlier steps are read, but it is not proved how they are kept
  Grows,    ///< new rows follow the old ones
  /// Grows within one buffer of past and present, which the model requires from its driver. A
  /// single cache has the value Grows; whether it is in one buffer is a separate property, which
  /// other caches may have, too.
  InPlace,
  Ring,     ///< only the last rows are kept
  Static,   ///< the number of rows is fixed; inputs of the model select the rows that are written
  Blocks,   ///< grows in blocks
  State,    ///< replaced as a whole: a recurrent or convolution state, or a cache inside the model
  ReadOnly, ///< never changes: computed outside of the model, and only read
};

} // namespace kvopt::ir
