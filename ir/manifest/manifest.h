// Manifest: how a program must drive a model's caches. The contract between rewritten models and
// the programs that run them; written beside the model and into its metadata.
#pragma once

#include "ir/cache_layout.h"
#include "ir/cache_role.h"
#include "ir/element_type.h"
#include "ir/manifest/cache_storage.h"
#include "ir/manifest/tiles.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::ir {

class Model;

/// The metadata key the manifest is stored under.
inline constexpr const char* manifestKey = "kvopt.manifest";
/// The metadata entry with the number of attention sites that a rewrite left as they were; there is
/// none where it left none.
inline constexpr const char* partialKey = "kvopt.sites_left";

/// The metadata entry with what the model called the number of earlier rows of its caches before
/// they were given a capacity.
inline constexpr const char* pastExtentKey = "kvopt.past_extent";

/// What to feed a length input at a step that adds S tokens after P earlier ones.
enum class LengthFeed {
  PastLength,          ///< P
  TotalLength,         ///< P + S
  PastLengthPerBatch,  ///< P of each batch row
  TotalLengthPerBatch, ///< P + S of each batch row
  TotalLengthMinusOne, ///< P + S - 1
  TotalLengthPerBatchMinusOne,
  NewLength,  ///< S
  HasPast,    ///< 1 or true where P > 0
  NoPast,     ///< 1 or true where P == 0
  BlockTable, ///< [B, blocks of a row]: the blocks of pools that hold the tokens of each batch row
};

/// Whether the input says if there is a past, and is no length.
inline bool isFlag(LengthFeed feed) {
  return feed == LengthFeed::HasPast || feed == LengthFeed::NoPast;
}

/// Whether each batch row has a number of its own.
inline bool isPerBatchRow(LengthFeed feed) {
  return feed == LengthFeed::PastLengthPerBatch || feed == LengthFeed::TotalLengthPerBatch ||
         feed == LengthFeed::TotalLengthPerBatchMinusOne;
}

/// A fixed extent or the name of a symbolic one.
using ManifestExtent = std::variant<int64_t, std::string>;

/// What a cache is of a cache of the model that was rewritten, which held several in one: keys and
/// values, or those of all layers.
struct ManifestPart {
  /// The names of that cache's input and output.
  std::string past;
  std::string present;
  /// For each axis of that cache, the index at which the part starts; along axes that the part has,
  /// it is as long as the part.
  std::vector<int64_t> first;
  /// The axes of that cache, ascending, along which the part is one entry, and that it does not
  /// have.
  std::vector<int64_t> dropped;

  /// `cache[0, 1]`: the entry of each dropped axis; `cache[axis 1 from 2]` where the part starts at
  /// 2 along an axis that it has.
  std::string text(llvm::StringRef cache) const;

  bool operator==(const ManifestPart&) const = default;
};

/// A cache of the model that was rewritten which the rewritten model has no more.
struct ManifestReplacement {
  std::string past;
  std::string present;

  bool operator==(const ManifestReplacement&) const = default;
};

/// How rows that a cache holds depend on their position p: pairs of columns are rotated by
/// p * theta. A row becomes that of position p + n when each pair (x, y) becomes
/// (x cos - y sin, x sin + y cos) of the angle n * theta.
struct ManifestRotation {
  int64_t width = 0; ///< columns of one head's row
  int64_t first = 0; ///< the first rotated column
  /// Pair i is (first + 2 i, first + 2 i + 1); otherwise (first + i, first + i + pairs).
  bool interleaved = false;
  /// In radians for each position, one for each pair.
  std::vector<double> theta;

  bool operator==(const ManifestRotation&) const = default;
};

struct ManifestCache {
  int64_t layer = 0;
  CacheRole role = CacheRole::Key;
  std::string past;
  std::string present;
  CacheStorage storage;
  /// The rows are those that attention reads; in the model that was rewritten they are what these
  /// are computed of.
  bool holdsAttendedRows = false;
  /// The caches of the model that was rewritten that this one is kept instead of: attention
  /// computes what it needs of their rows from this one's.
  std::vector<ManifestReplacement> replaces;
  /// The element type of the cache in the model that was rewritten, where its rows are rounded to
  /// `dtype`; Undefined where they are not.
  ElementType exportedDtype = ElementType::Undefined;
  /// Of rows of four-bit codes (support/four_bit_row.h): how many numbers each stands for; 0 for
  /// others.
  int64_t codeColumns = 0;
  std::vector<ManifestExtent> shape;
  int64_t sequenceAxis = 2;
  ElementType dtype = ElementType::Float;
  int64_t window = 0;
  /// The index in Manifest::rotations of what the position of a row does to it; nullopt where it
  /// does nothing.
  std::optional<size_t> rotation;
  /// Other layers that read this layer's cache.
  std::vector<int64_t> readers;
  /// Set where the model that was rewritten kept several caches in one.
  std::optional<ManifestPart> part;
  /// Axis i is axis permutation[i] of the cache, or of the part of one, of the model that was
  /// rewritten; empty where the axes are in that model's order.
  std::vector<int64_t> permutation;

  /// How the cache changes from step to step: one of Grows, Ring, Static, Blocks, State, ReadOnly.
  CacheUpdate update() const { return updateOf(storage); }
  /// Whether past and present must be one buffer.
  bool isOneBuffer() const { return ir::isOneBuffer(storage); }
  /// Whether past and present are a pool of blocks.
  bool isPool() const { return std::holds_alternative<PoolCache>(storage); }
  /// Whether `present` of a growing cache has the new rows only.
  bool givesNewRows() const;
  /// The inputs that are the blocks of a cache in blocks; empty for others.
  llvm::ArrayRef<std::string> blocks() const;

  /// Rows along the sequence axis, where they are a number.
  std::optional<int64_t> fixedRows() const;
  /// As far as rank and sequence axis tell it.
  std::optional<CacheLayout> layout() const {
    return CacheLayout::bySequenceAxis(shape.size(), sequenceAxis);
  }
};

struct ManifestLength {
  std::string input;
  ElementType dtype = ElementType::Int64;
  std::vector<ManifestExtent> shape;
  LengthFeed feed = LengthFeed::PastLength;
};

/// What to feed an input that is neither a cache nor a length, at a step that adds S tokens after P
/// earlier ones.
enum class InputFeed {
  Tokens,       ///< the new tokens' ids
  Positions,    ///< the new tokens' positions: visible tokens counted from 0
  VisibleKeys,  ///< 1 or true where a query may see a key, else 0
  HiddenKeys,   ///< 1 or true where a query may not see a key, else 0
  AdditiveMask, ///< 0 where a query may see a key, else the element type's lowest finite number
  Segments,     ///< numbers of segments: tokens see those of their own segment
  BatchRows,    ///< 0 … batch - 1
  Any,          ///< the analysis does not tell: whatever the model's documentation says
};

/// An input whose name is not one of the documented interface names of decoders.
struct ManifestInput {
  std::string input;
  ElementType dtype = ElementType::Int64;
  /// Fixed extents and the words `batch`, `new` (S), `past` (P) and `total` (P + S); a name of the
  /// model's own where the analysis does not tell.
  std::vector<ManifestExtent> shape;
  InputFeed feed = InputFeed::Any;
};

/// A model of its own that computes the same for caches with fewer blocks.
struct ManifestVariant {
  /// The file's name, in the folder of the model's. Empty for what was not written yet.
  std::string file;
  int64_t pastBlocks = 0; ///< how many blocks of each cache are its inputs
  int64_t pastRows = 0;   ///< rows of those together
};

struct Manifest {
  std::string target;
  /// How the caches that a rewrite changed do: Grows, InPlace, Blocks, or State where the model
  /// keeps them to itself.
  CacheUpdate contract = CacheUpdate::Grows;
  std::string capacitySymbol;
  std::optional<int64_t> capacityValue;
  /// Tokens of a block, of caches in blocks and of pools: all before the last that holds any are
  /// full. 0 without.
  int64_t blockSize = 0;
  std::vector<ManifestCache> caches;
  std::vector<ManifestLength> lengths;
  /// Other inputs, as far as their names do not say what to feed them.
  std::vector<ManifestInput> inputs;
  /// Where blocks have fixed extents, each of `blockSize` rows but for what the capacity leaves the
  /// last: what of them is no token may be any finite numbers. A step takes the first variant that
  /// has at least as many rows as there are tokens before it, with its blocks. In the order of
  /// their blocks; the last one has all, and is the model that the manifest belongs to. Empty where
  /// blocks are as long as they hold tokens.
  std::vector<ManifestVariant> variants;
  /// Set where the model was also written in pieces, for engines that compile them for fixed
  /// extents. Blocks then have fixed extents, and the model is its only variant.
  std::optional<ManifestTiles> tiles;
  /// The input [B] that says which batch row each row of the caches continues: before a step, row i
  /// of every cache becomes what row reorder[i] was. The model itself does not do it. Empty: rows
  /// stay where they are.
  std::string reorder;
  /// The file, in the folder of the model's, of a model that is run once for each encoded sequence:
  /// its outputs are the cross-attention caches of the same names. Empty without one.
  std::string firstStep;
  /// In the largest batch whose steps may add several tokens to a past; larger ones add them one by
  /// one. 0: none may. nullopt: any may.
  std::optional<int64_t> chunkBatch;
  /// The most tokens that a step may add: rings have room for so many beside the rows that are
  /// still seen. nullopt: any number.
  std::optional<int64_t> stepLimit;
  /// Rows of tokens that are hidden from themselves and all before them, which is padding, need not
  /// come out as they did before the rewrite.
  bool hiddenRowsUndefined = false;
  /// Masks of integers that must be ones, or of bools that must be true: no batch row may be
  /// padded.
  std::vector<std::string> unpadded;
  /// The model counts the tokens of a batch row by its mask and puts new ones behind those, so that
  /// padding must come behind the tokens of a prompt. The prompt is then one step.
  bool padsRight = false;

  /// Set where positions have a part in what the model computes by their differences only, so that
  /// rows may be moved to other positions: every rotation that cached rows hold, each once. Empty
  /// where they hold none.
  std::optional<std::vector<ManifestRotation>> rotations;

  /// Whether some cache's past and present must be one buffer.
  bool sharesBuffers() const;
  /// Whether some cache is a pool of blocks.
  bool hasPools() const;
  /// Whether some cache is not handed from step to step as the graph alone says: it is in one
  /// buffer, or in blocks.
  bool ownsCaches() const;

  /// Exactly the JSON object that docs describe as kvopt/manifest/1, two-space indented.
  std::string json() const;
};

/// Parses and checks a manifest: schema, known words, axes within shapes.
llvm::Expected<Manifest> parseManifest(llvm::StringRef json);

/// The manifest in the model's metadata, which anyone may have written: it is checked against the
/// graph (checkManifest). nullopt when there is none.
llvm::Expected<std::optional<Manifest>> manifestOf(const Model& model);

} // namespace kvopt::ir
