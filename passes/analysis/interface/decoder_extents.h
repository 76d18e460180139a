// Meanings of an exported decoder's extents: batch rows, tokens, earlier tokens.
#pragma once

#include "ir/graph.h"

#include <string>
#include <variant>
#include <vector>

namespace kvopt::analysis {

/// Extents of a decoder that callers choose unless they are fixed.
struct DecoderExtents {
  ir::Dim batch;
  ir::Dim tokens; ///< number of tokens in a step
  /// Number of cache rows before the step if caches grow; 0 without such caches.
  ir::Dim past = ir::Dim::fixed(0);

  ir::Dim keys() const { return past + tokens; }
  bool hasPast() const { return past.value() != 0; }
};

/// The extents that a decoder was exported with, numbers or symbols. Derived from the caches, which
/// grow by one row per token in a step, or otherwise from the input that indexes a token table.
/// Returns a reason if they do not determine the extents.
std::variant<DecoderExtents, std::string> findDecoderExtents(const ir::Graph& graph);

/// An input, with its shape after symbols have replaced numbers.
struct FreedInput {
  ir::Value* input;
  ir::Shape shape;
};

/// All inputs with a known rank, with their shapes. The first axis counts batch rows; for caches
/// stacked in one tensor, the axis before the heads does. The last axis of a mask counts keys; the
/// axis before its last two, or after the batch, counts tokens.
std::vector<FreedInput> freedInputs(const ir::Graph& graph, const DecoderExtents& exported,
                                    const DecoderExtents& freed);

} // namespace kvopt::analysis
