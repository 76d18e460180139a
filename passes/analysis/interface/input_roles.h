// Roles of a decoder's inputs, derived from their readers.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"
#include "passes/analysis/interface/interface_facts.h"

namespace kvopt::analysis {

/// Adds to `lengths` and `inputs` of the manifest the values to feed for graph inputs that it does
/// not mention and that have no default. Documented inputs (ir/manifest/documented_inputs.h), which
/// drivers know, are left out unless their readers contradict the documentation. Given roles are
/// taken over. Other roles follow from the data flow of each input, through operators that keep its
/// elements (casts, reshapes, slices, …):
///
///   integers   that index the constant table with a row for each score, or the largest one: token
///              ids; another table, or an angle's factor: positions; a cache's batch axis: batch
///              rows; compared with themselves: segments
///   integers   of one element, or one for each batch row: a length. Operators that define their
///              operands take precedence (GroupQueryAttention's `seqlens_k` is the total less one,
///              Attention's `nonpad_kv_seqlen` the total, TensorScatter's `write_indices` the
///              past), then the start (past) and end (total) of a Range or Slice, less the amount
///              that the graph added on the way; a number that is added to the past, or that ends
///              a Range whose numbers are shifted, is the number of new tokens
///   integers   that a constant triangle is multiplied by: 1 in the first step, else 0
///   floats     that are added to scores: an additive mask
///   any type   whose complement or comparison selects scores: a mask, of visible or of hidden keys
///              depending on the complement and the selection
///
/// If no input holds token ids, floats [B,S,W] with one row per new cache row are embedded tokens:
/// InputFeed::Any, with the extents of a step. Other floating-point inputs of three or more axes
/// without a role are left out: they are outputs of an encoder. All others are InputFeed::Any. The
/// symbols of token ids and caches determine extents, or otherwise their position.
void describeInputs(const ir::Graph& graph, const InterfaceFacts& facts, ir::Manifest& manifest);

} // namespace kvopt::analysis
