// Manifest: how a program must drive a model's caches. kvopt writes it next to a rewritten model
// and to the model's metadata, for programs that run the model.
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

/// Metadata key of the manifest.
inline constexpr const char* manifestKey = "kvopt.manifest";
/// Metadata key of the number of attention layers that a rewrite did not change; absent if it
/// changed all of them.
inline constexpr const char* partialKey = "kvopt.sites_left";

/// Metadata key of the symbol that was the number of earlier rows of the model's caches before they
/// received a capacity.
inline constexpr const char* pastExtentKey = "kvopt.past_extent";

/// Value of a length input at a step that adds S tokens after P earlier ones.
enum class LengthFeed {
  PastLength,          ///< P
  TotalLength,         ///< P + S
  PastLengthPerBatch,  ///< P of each batch row
  TotalLengthPerBatch, ///< P + S of each batch row
  TotalLengthMinusOne, ///< P + S - 1
  TotalLengthPerBatchMinusOne,
  PastLengthMinusOne, ///< P - 1
  PastLengthPerBatchMinusOne,
  NewLength,  ///< S
  HasPast,    ///< 1 or true if P > 0
  NoPast,     ///< 1 or true if P == 0
  BlockTable, ///< [B, blocks per row]: blocks of pools that hold the tokens of each batch row
};

/// Whether the input is a flag for the presence of a past, rather than a length.
inline bool isFlag(LengthFeed feed) {
  return feed == LengthFeed::HasPast || feed == LengthFeed::NoPast;
}

/// Whether each batch row has a separate number.
inline bool isPerBatchRow(LengthFeed feed) {
  return feed == LengthFeed::PastLengthPerBatch || feed == LengthFeed::TotalLengthPerBatch ||
         feed == LengthFeed::TotalLengthPerBatchMinusOne ||
         feed == LengthFeed::PastLengthPerBatchMinusOne;
}

/// A fixed extent or the name of a symbolic one.
using ManifestExtent = std::variant<int64_t, std::string>;

/// The part that a cache is of a cache of the exported model, which held several caches in one:
/// keys and values, or those of all layers.
struct ManifestPart {
  /// Names of that cache's input and output.
  std::string past;
  std::string present;
  /// Start index of the part along each axis of that cache. Along axes that the part has, its
  /// extent is the part's.
  std::vector<int64_t> first;
  /// Axes of that cache, ascending, along which the part is a single entry, and which the part does
  /// not have.
  std::vector<int64_t> dropped;

  /// Text such as `cache[0, 1]`: the entry of each dropped axis; `cache[axis 1 from 2]` if the part
  /// starts at 2 along an axis that it has.
  std::string text(llvm::StringRef cache) const;

  bool operator==(const ManifestPart&) const = default;
};

/// A cache of the exported model that the rewritten model no longer has.
struct ManifestReplacement {
  std::string past;
  std::string present;

  bool operator==(const ManifestReplacement&) const = default;
};

/// Dependence of cached rows on their position p: pairs of columns are rotated by p * theta. A row
/// becomes that of position p + n if each pair (x, y) becomes (x cos - y sin, x sin + y cos) for
/// the angle n * theta.
struct ManifestRotation {
  int64_t width = 0; ///< columns of one head's row
  int64_t first = 0; ///< the first rotated column
  /// Whether pair i is (first + 2 i, first + 2 i + 1); otherwise it is (first + i, first + i +
  /// pairs).
  bool interleaved = false;
  /// Angle of each pair per position, in radians.
  std::vector<double> theta;

  bool operator==(const ManifestRotation&) const = default;
};

struct ManifestCache {
  // Long functions, which every user would otherwise compile.
  ManifestCache();
  ManifestCache(const ManifestCache&);
  ManifestCache(ManifestCache&&) noexcept;
  ManifestCache& operator=(const ManifestCache&);
  ManifestCache& operator=(ManifestCache&&) noexcept;
  ~ManifestCache();

  int64_t layer = 0;
  CacheRole role = CacheRole::Key;
  std::string past;
  std::string present;
  CacheStorage storage;
  /// Whether the rows are those that attention reads; in the exported model, attention computes
  /// these from the rows of the cache.
  bool holdsAttendedRows = false;
  /// Caches of the exported model that this one replaces: attention computes the required part of
  /// their rows from the rows of this one.
  std::vector<ManifestReplacement> replaces;
  /// Element type of the cache in the exported model, if its rows are rounded to `dtype`; otherwise
  /// Undefined.
  ElementType exportedDtype = ElementType::Undefined;
  /// Number of values in a four-bit row (support/four_bit_row.h); 0 for other rows.
  int64_t codeColumns = 0;
  std::vector<ManifestExtent> shape;
  int64_t sequenceAxis = 2;
  ElementType dtype = ElementType::Float;
  int64_t window = 0;
  /// Contents of a state before the first step, repeated over all elements; empty: zeros.
  std::vector<double> initial;
  /// Index in Manifest::rotations of the effect of positions on rows; nullopt if there is none.
  std::optional<size_t> rotation;
  /// Other layers that read this layer's cache.
  std::vector<int64_t> readers;
  /// Set if the exported model kept several caches in one.
  std::optional<ManifestPart> part;
  /// Axis i is axis permutation[i] of the exported model's cache, or of its part; empty if the
  /// order of axes is the same.
  std::vector<int64_t> permutation;

  /// How the cache changes from step to step: one of Grows, Ring, Static, Blocks, State, ReadOnly.
  CacheUpdate update() const { return updateOf(storage); }
  /// Whether past and present must be one buffer.
  bool isOneBuffer() const { return ir::isOneBuffer(storage); }
  /// Whether past and present are a pool of blocks.
  bool isPool() const { return std::holds_alternative<PoolCache>(storage); }
  /// Whether `present` of a growing cache contains only the new rows.
  bool givesNewRows() const;
  /// Inputs that are the blocks of a cache in blocks; empty for other caches.
  llvm::ArrayRef<std::string> blocks() const;

  /// Number of rows along the sequence axis, if it is fixed.
  std::optional<int64_t> fixedRows() const;
  /// Layout, if rank and sequence axis determine it.
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

/// Value of an input that is neither a cache nor a length, at a step that adds S tokens after P
/// earlier ones.
enum class InputFeed {
  Tokens,       ///< ids of the new tokens
  Positions,    ///< positions of the new tokens: visible tokens counted from 0
  VisibleKeys,  ///< 1 or true if a query may see a key, otherwise 0
  HiddenKeys,   ///< 1 or true if a query may not see a key, otherwise 0
  AdditiveMask, ///< 0 if a query may see a key, otherwise the element type's lowest finite number
  VisibleKeysAtEnd,  ///< VisibleKeys whose last columns are the keys of all tokens so far
  HiddenKeysAtEnd,   ///< the same of HiddenKeys
  AdditiveMaskAtEnd, ///< the same of AdditiveMask
  Slots,             ///< positions of the new tokens, modulo the number of rows of the caches
  KeyPositions,      ///< position of the token in each row of the caches; -1 if there is none
  Segments,          ///< numbers of segments: tokens see only their own segment
  BatchRows,         ///< 0 … batch - 1
  Constant,          ///< ManifestInput::numbers, the same at every step
  Any,               ///< unknown to the analysis; see the model's documentation
};

/// An input whose name is not one of the documented interface names of decoders.
struct ManifestInput {
  std::string input;
  ElementType dtype = ElementType::Int64;
  /// Fixed extents and the words `batch`, `new` (S), `past` (P) and `total` (P + S); one of the
  /// model's own symbols if the analysis does not know the extent.
  std::vector<ManifestExtent> shape;
  InputFeed feed = InputFeed::Any;
  std::vector<double> numbers = {}; ///< those of a constant, repeated over all elements
};

/// A separate model that computes the same results for caches with fewer blocks.
struct ManifestVariant {
  /// Name of the file in the model's folder; empty if it is not written yet.
  std::string file;
  int64_t pastBlocks = 0; ///< number of blocks of each cache that are inputs
  int64_t pastRows = 0;   ///< total number of their rows
};

/// Operators outside ONNX's own domains that an engine needs functions or kernels for.
struct ManifestOperators {
  std::string domain;
  int64_t version = 1;            ///< version of the domain that the model imports
  std::vector<std::string> names; ///< sorted, each once

  bool operator==(const ManifestOperators&) const = default;
};

/// How far a rewritten model was shown to be equal to the model before the rewrite.
enum class EqualityVerdict {
  Proved,        ///< by construction
  ProvedReduced, ///< in the scope of a check, and an argument extends it to all sizes
  Tested,        ///< in the scope of a check, or in runs
};

/// Means by which a rewritten model was compared.
enum class ComparisonMeans { Check, Quick, Full };

/// A comparison of a rewritten model with the model before the rewrite. It has neither times nor
/// paths, so that the same rewrite writes the same bytes. Anyone can write it to a file: only
/// another check shows that it holds.
struct ManifestComparison {
  EqualityVerdict verdict = EqualityVerdict::Tested;
  ComparisonMeans by = ComparisonMeans::Check;
  /// SHA-256 of the file of the model before the rewrite, in hexadecimal.
  std::string before;
  /// Digest of the certificate of the check; empty if the check did not show the verdict.
  std::string certificate;
  std::vector<std::string> assumptions;
  /// Parts that were not looked at.
  std::vector<std::string> notChecked;

  bool operator==(const ManifestComparison&) const = default;
};

struct Manifest {
  // As for ManifestCache.
  Manifest();
  Manifest(const Manifest&);
  Manifest(Manifest&&) noexcept;
  Manifest& operator=(const Manifest&);
  Manifest& operator=(Manifest&&) noexcept;
  ~Manifest();

  std::string target;
  /// How the caches change that a rewrite changed: Grows, InPlace, Blocks, or State for caches
  /// inside the model.
  CacheUpdate contract = CacheUpdate::Grows;
  std::string capacitySymbol;
  std::optional<int64_t> capacityValue;
  /// Number of tokens in a block, for caches in blocks and for pools; 0 without. All blocks before
  /// the last one with tokens are full.
  int64_t blockSize = 0;
  std::vector<ManifestCache> caches;
  std::vector<ManifestLength> lengths;
  /// Other inputs whose names do not determine their values.
  std::vector<ManifestInput> inputs;
  /// Set if blocks have fixed extents: each has `blockSize` rows, except that the capacity may
  /// limit the last one. Rows without a token may be any finite numbers. A step uses the first
  /// variant, and its blocks, whose number of rows is at least the number of earlier tokens. In the
  /// order of the number of blocks; the last one has all blocks, and is the model of this manifest.
  /// Empty if each block has exactly the rows of its tokens.
  std::vector<ManifestVariant> variants;
  /// Set if the model was also written in pieces, for engines that compile fixed extents. Blocks
  /// then have fixed extents, and the model is its only variant.
  std::optional<ManifestTiles> tiles;
  /// Input [B] with the batch row that each row of the caches continues: before a step, the host
  /// makes row i of every cache a copy of row reorder[i]. Empty: rows are not reordered.
  std::string reorder;
  /// File, in the model's folder, of a model that runs once for each encoded sequence: its outputs
  /// are the cross-attention caches of the same names. Empty if there is none.
  std::string firstStep;
  /// Largest batch whose steps may add several tokens to a past; larger batches add them one by
  /// one. 0: no batch may; nullopt: all may.
  std::optional<int64_t> chunkBatch;
  /// Maximum number of tokens of a step, for which rings have room in addition to the rows that are
  /// still visible. nullopt: unlimited.
  std::optional<int64_t> stepLimit;
  /// Whether rows of padding, which is hidden from itself and all earlier tokens, may have other
  /// results than before the rewrite.
  bool hiddenRowsUndefined = false;
  /// Integer masks that must be all ones, or bool masks that must be all true: no batch row may be
  /// padded.
  std::vector<std::string> unpadded;
  /// Whether the model counts the tokens of a batch row by its mask and puts new ones after those.
  /// Padding must then follow the tokens of a prompt, and the prompt is a single step.
  bool padsRight = false;

  /// Operators of kvopt's domain that the model uses; nullopt if it uses none.
  std::optional<ManifestOperators> operators;

  /// Set if the rewrite compared the model with the one before it.
  std::optional<ManifestComparison> comparison;

  /// Set if only differences of positions affect the model's results, so that rows may be moved to
  /// other positions: every distinct rotation of cached rows. Empty if cached rows are not rotated.
  std::optional<std::vector<ManifestRotation>> rotations;

  /// Whether past and present of at least one cache must be one buffer.
  bool sharesBuffers() const;
  /// Whether at least one cache is a pool of blocks.
  bool hasPools() const;
  /// Whether at least one cache is not passed from step to step as the graph alone implies, because
  /// it is in one buffer or in blocks.
  bool ownsCaches() const;

  /// The JSON object kvopt/manifest/1 of the documentation, with an indentation of two spaces.
  std::string json() const;
};

/// Operators of kvopt's domain in the model's graph and its subgraphs, which are not changed;
/// nullopt if there are none.
std::optional<ManifestOperators> ownOperatorsOf(Model& model);

/// Parses and checks a manifest: schema, known words, axes within shapes.
llvm::Expected<Manifest> parseManifest(llvm::StringRef json);

/// Manifest in the model's metadata. It is untrusted, and is checked against the graph
/// (checkManifest). nullopt if there is none.
llvm::Expected<std::optional<Manifest>> manifestOf(const Model& model);

} // namespace kvopt::ir
