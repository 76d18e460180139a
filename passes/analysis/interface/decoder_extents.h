// What the extents of an exported decoder count: batch rows, tokens, earlier tokens.
#pragma once

#include "ir/graph.h"

#include <string>
#include <variant>
#include <vector>

namespace kvopt::analysis {

/// Extents that callers of a decoder choose, where they are not fixed.
struct DecoderExtents {
  ir::Dim batch;
  ir::Dim tokens; ///< of a step
  /// Rows of the caches before it, where they grow; 0 without such caches.
  ir::Dim past = ir::Dim::fixed(0);

  ir::Dim keys() const { return past + tokens; }
  bool hasPast() const { return past.value() != 0; }
};

/// The extents that a decoder was exported with, numbers or symbols. By the caches, which have as
/// many rows more after a step as there are tokens, and otherwise by the input that a table of
/// tokens is indexed with. The reason where they do not tell.
std::variant<DecoderExtents, std::string> findDecoderExtents(const ir::Graph& graph);

/// An input, with the shape that it has once symbols have taken the place of numbers.
struct FreedInput {
  ir::Value* input;
  ir::Shape shape;
};

/// All inputs that have a rank, with their shapes. The first axis counts batch rows (of a cache in
/// one tensor with others, the one before the heads), the last one of a mask keys, and the one
/// before its last two, or after the batch, tokens.
std::vector<FreedInput> freedInputs(const ir::Graph& graph, const DecoderExtents& exported,
                                    const DecoderExtents& freed);

} // namespace kvopt::analysis
