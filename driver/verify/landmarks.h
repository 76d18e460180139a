// Landmarks: lengths at which the computation of a model may change.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "ir/op.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Reason that the computation of a model may change at a length.
enum class LandmarkKind {
  Window,   ///< attention sees this number of keys
  Ring,     ///< a ring is full, or its slots are used for the second time
  Block,    ///< the next block, or page, receives rows
  Variant,  ///< the next variant takes the step
  Capacity, ///< the caches are full
  Compared, ///< the graph compares lengths, positions or batch sizes with this number
};

/// A number of tokens at which the form of a model, or an operator of its graph, may change the
/// computation.
struct Landmark {
  int64_t tokens = 0;
  LandmarkKind kind = LandmarkKind::Compared;
  /// The node that compares; empty for other kinds of landmarks.
  std::string node = {};

  /// The kind as a word, "window", "capacity", …, or the node.
  std::string what() const;
};

/// The landmarks of a model, each number once and in ascending order:
/// - windows of caches, and the rows of rings, once and twice;
/// - the first two and the last boundary of blocks and pages, the rows of each variant, and the
///   capacity;
/// - the constants that the graph compares lengths with (`comparedLengths`).
/// Where the manifest and the graph give the same number, the kind is the manifest's.
std::vector<Landmark> landmarksOf(const ir::Model& model, const ir::Manifest& manifest);

/// The landmarks of a model and of its variants and pieces in files next to it, whose graphs may
/// compare with other numbers. Files that cannot be opened are skipped; the session that needs them
/// fails.
std::vector<Landmark> landmarksOfFiles(const ir::Model& model, const ir::Manifest& manifest,
                                       const ir::OpRegistry& operators);

/// The landmarks of two models, in the order of `landmarksOf`.
std::vector<Landmark> joinedLandmarks(std::vector<Landmark> one, std::vector<Landmark> other);

} // namespace kvopt::driver
