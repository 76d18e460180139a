// Edits of initializers and of extents.
#pragma once

#include "ir/model.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Names of initializers with at least `leastBytes` bytes, in the order of the graph.
std::vector<std::string> initializerNames(const ir::Graph& graph, int64_t leastBytes);

/// Replaces initializers by inputs of the same names and types.
bool turnIntoInputs(ir::Graph& graph, llvm::ArrayRef<std::string> names);

/// Contents of an initializer that is made simpler.
enum class Contents {
  Scalar, ///< One zero without axes.
  Zeros,  ///< Zeros of the same type and extents.
};

/// Replaces the contents of initializers of numbers; false if none changes. Contents of more than
/// 16 MiB are not replaced by zeros, which would be inline.
bool simplify(ir::Graph& graph, llvm::ArrayRef<std::string> names, Contents contents);

/// Extents above 1 of inputs and initializers, without duplicates, the largest first.
std::vector<int64_t> fixedExtents(const ir::Graph& graph);

/// Divides every multiple of `extent` in the types of inputs, in the extents of constants and in
/// lists of integers by `extent`, and multiplies it by `smaller`. Constants keep the elements at
/// the start of each axis. Infers all types again; false if they contradict each other, or if a
/// constant has more than 16 MiB.
bool scaleExtents(ir::Model& model, int64_t extent, int64_t smaller);

} // namespace kvopt::driver
