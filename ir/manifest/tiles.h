// ManifestTiles: how a host runs the pieces of a decoder that was cut around its attention.
#pragma once

#include "ir/element_type.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::ir {

/// One attention, which is computed tile by tile between two parts. Names are those of values that
/// parts have given by then. A tile takes inputs with these names (as far as it has them):
///
///   query, key, value, mask    what attention reads; key and value are a block of the caches, as
///                              it lies there, and `mask` the columns of `mask` below for its rows
///   output, maximum, sum       the state so far
///
/// and gives the state behind it as next_output, next_maximum and next_sum. There is a tile for
/// each block that holds tokens, in their order, and at last one for the new rows. The columns of
/// the mask for block i begin at i * Manifest::blockSize, those for the new rows at the capacity.
struct ManifestTiledAttention {
  int64_t afterPart = 0; ///< the part after which it is computed
  std::string query;
  std::string key;   ///< of the new rows, as the last tile takes them
  std::string value; ///< the same
  std::string mask;  ///< its last axis has a column for each row of all blocks, and each new row
  std::string output, maximum, sum; ///< the state before the first tile
  /// ManifestCache::past of the caches of keys and of values; the same for rows that are both.
  std::string keyCache;
  std::string valueCache;
  /// Indices in ManifestTiles::tiles of those for a block of Manifest::blockSize rows, for a last
  /// block of fewer, where the capacity leaves one, and for the new rows.
  int64_t blockTile = 0;
  std::optional<int64_t> tailTile;
  int64_t lastTile = 0;
  /// What the last next_output is called in the parts that read it.
  std::string result;

  bool operator==(const ManifestTiledAttention&) const = default;
};

/// The pieces of a decoder. Parts are run one after another, each with what inputs of the model and
/// earlier parts give under the names of its inputs; the model's outputs are among what they give.
struct ManifestTiles {
  /// The element type of the state: float32 or float16.
  ElementType state = ElementType::Float;
  /// The files, in the folder of the model's, of parts and of tiles. Empty names: not written yet.
  std::vector<std::string> parts;
  std::vector<std::string> tiles;
  /// The model's outputs, which parts give besides what others read.
  std::vector<std::string> outputs;
  /// Ascending by the part after which they are computed.
  std::vector<ManifestTiledAttention> attentions;

  bool operator==(const ManifestTiles&) const = default;
};

} // namespace kvopt::ir
