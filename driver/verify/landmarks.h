// Lengths around which a model may begin to compute something else.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "ir/op.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Why a model may begin to compute something else at a length.
enum class LandmarkKind {
  Window,   ///< attention sees this many keys
  Ring,     ///< a ring is full, or its slots are used for the second time
  Block,    ///< the next block, or page, receives rows
  Variant,  ///< the next variant takes the step
  Capacity, ///< the caches are full
  Compared, ///< the graph compares lengths, positions or batch sizes with it
};

/// A number of tokens at which the form of a model, or an operator of its graph, may change what is
/// computed.
struct Landmark {
  int64_t tokens = 0;
  LandmarkKind kind = LandmarkKind::Compared;
  /// The node that compares; empty for other kinds.
  std::string node = {};

  /// "window", "capacity", … or the node.
  std::string what() const;
};

/// The landmarks of a model, each number once and in ascending order:
/// - windows of caches, and the rows of rings, once and twice;
/// - the first two and the last boundary of blocks and pages, the rows of each variant, and the
///   capacity;
/// - the constants that the graph compares lengths with (`comparedLengths`).
/// Where the manifest and the graph give the same number, the kind is the manifest's.
std::vector<Landmark> landmarksOf(const ir::Model& model, const ir::Manifest& manifest);

/// The same of a model and of the variants and pieces in files next to it: their graphs may compare
/// with other numbers. Files that cannot be opened are left out; the session that needs them fails.
std::vector<Landmark> landmarksOfFiles(const ir::Model& model, const ir::Manifest& manifest,
                                       const ir::OpRegistry& operators);

/// The landmarks of both, as `landmarksOf` orders them.
std::vector<Landmark> joinedLandmarks(std::vector<Landmark> one, std::vector<Landmark> other);

} // namespace kvopt::driver
