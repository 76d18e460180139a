// CacheRole: meaning of the rows of a cache.
#pragma once

namespace kvopt::ir {

enum class CacheRole {
  Key,
  Value,
  Latent,   ///< keys, some of whose columns are the values
  KeyScale, ///< multipliers of the rows of the layer's keys, which are codes
  ValueScale,
  LatentScale,
  State, ///< a recurrent or convolution state, neither keys nor values
};

/// Whether the cache holds the multipliers of another cache's codes.
inline bool isScale(CacheRole role) {
  return role == CacheRole::KeyScale || role == CacheRole::ValueScale ||
         role == CacheRole::LatentScale;
}

/// Role of the multipliers of a cache of codes.
inline CacheRole scaleRole(CacheRole codes) {
  return codes == CacheRole::Key      ? CacheRole::KeyScale
         : codes == CacheRole::Latent ? CacheRole::LatentScale
                                      : CacheRole::ValueScale;
}

} // namespace kvopt::ir
