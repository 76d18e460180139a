// What the inputs of a decoder are for, by what reads them.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"
#include "passes/analysis/interface/interface_facts.h"

namespace kvopt::analysis {

/// Adds to `lengths` and `inputs` of the manifest what to feed the inputs of the graph that it does
/// not mention and that have no default. Documented inputs (ir/manifest/documented_inputs.h) are
/// left out, which drivers know, unless what reads them is at odds with it. By data flow from each
/// input, through operators that keep its elements (casts, reshapes, slices, …):
///
///   integers   that index the constant table with a row for each score, or the largest one: token
///              ids; another table, or an angle's factor: positions; a cache's batch axis: batch
///              rows; compared with themselves: segments
///   integers   of one element, or one for each batch row: a length. Operators that define what
///              they read come first (GroupQueryAttention's `seqlens_k` is the total less one,
///              Attention's `nonpad_kv_seqlen` the total, TensorScatter's `write_indices` the
///              past), then where a Range or Slice starts (past) and ends (total), less what the
///              graph added on the way; what is added to the past, or counts a Range whose numbers
///              are moved on, is the new tokens
///   integers   that a constant triangle is multiplied with: 1 in the first step, else 0
///   floats     that are added to scores: an additive mask
///   any type   whose complement or comparison selects scores: a mask, of visible or of hidden keys
///              by what it is complemented and selected with
///
/// Where no token ids are fed, floats [B,S,W] with as many rows as caches get are embedded tokens:
/// InputFeed::Any, with the extents of a step. Other floating-point inputs of three or more axes
/// that are nothing of this are left out: they are what an encoder hands over. All others are
/// InputFeed::Any. Extents are told by the symbols of token ids and caches, and otherwise by their
/// place.
void describeInputs(const ir::Graph& graph, const InterfaceFacts& facts, ir::Manifest& manifest);

} // namespace kvopt::analysis
