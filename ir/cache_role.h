// CacheRole: what the rows of a cache are.
#pragma once

namespace kvopt::ir {

enum class CacheRole {
  Key,
  Value,
  Latent,   ///< keys, of which some columns are the values
  KeyScale, ///< what the rows of the layer's keys, which are codes, are multiplied by
  ValueScale,
  LatentScale,
  State, ///< a recurrent or convolution state, of neither keys nor values
};

/// Whether the cache says what the codes of another one stand for.
inline bool isScale(CacheRole role) {
  return role == CacheRole::KeyScale || role == CacheRole::ValueScale ||
         role == CacheRole::LatentScale;
}

/// The role of the scales of a cache of codes.
inline CacheRole scaleRole(CacheRole codes) {
  return codes == CacheRole::Key      ? CacheRole::KeyScale
         : codes == CacheRole::Latent ? CacheRole::LatentScale
                                      : CacheRole::ValueScale;
}

} // namespace kvopt::ir
