// ManifestTiles: how a host runs a decoder that is divided into parts between its attention layers.
#pragma once

#include "ir/element_type.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::ir {

/// One attention, which is computed tile by tile between two parts. Names refer to values that
/// earlier parts return. A tile has inputs with these names, as far as it needs them:
///
///   query, key, value, mask    operands of attention; key and value are one block of the caches in
///                              its stored layout, and the mask is its columns of `mask` below
///   output, maximum, sum       the state before the tile
///
/// It returns the state after the tile as next_output, next_maximum and next_sum. There is one tile
/// for each block with tokens, in the order of the tokens, and a last one for the new rows. The
/// mask's columns for block i begin at i * Manifest::blockSize, those for the new rows at the
/// capacity.
struct ManifestTiledAttention {
  int64_t afterPart = 0; ///< the part after which it is computed
  std::string query;
  std::string key;   ///< new rows of the keys, for the last tile
  std::string value; ///< new rows of the values
  std::string mask;  ///< its last axis has one column for each row of all blocks, followed by those
                     ///< of new rows
  std::string output, maximum, sum; ///< the state before the first tile
  /// ManifestCache::past of the caches of keys and of values; equal if one cache holds both.
  std::string keyCache;
  std::string valueCache;
  /// Indices in ManifestTiles::tiles: of the tile for a block of Manifest::blockSize rows, for a
  /// shorter last block if the capacity leaves one, and for the new rows.
  int64_t blockTile = 0;
  std::optional<int64_t> tailTile;
  int64_t lastTile = 0;
  /// Name of the last next_output in the parts that read it.
  std::string result;

  bool operator==(const ManifestTiledAttention&) const = default;
};

/// The pieces of a decoder. Parts run one after another. The inputs of each are inputs of the model
/// and outputs of earlier parts, with the same names; the model's outputs are among the parts'
/// outputs.
struct ManifestTiles {
  /// Element type of the state: float32 or float16.
  ElementType state = ElementType::Float;
  /// Files of parts and of tiles, in the model's folder. Empty names are not written yet.
  std::vector<std::string> parts;
  std::vector<std::string> tiles;
  /// The model's outputs, which parts return in addition to values for other parts.
  std::vector<std::string> outputs;
  /// Sorted by the part after which they are computed.
  std::vector<ManifestTiledAttention> attentions;

  bool operator==(const ManifestTiles&) const = default;
};

} // namespace kvopt::ir
