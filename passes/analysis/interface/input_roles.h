// What the inputs of a decoder are for, by what reads them.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"

namespace kvopt::analysis {

/// Whether exporters document what an input of this name and rank is fed: `input_ids`,
/// `decoder_input_ids`, `attention_mask`, `encoder_attention_mask`, `position_ids` and
/// `cache_position` of their usual ranks. Drivers know those by name.
bool hasDocumentedName(const ir::Value& input);

/// Adds to `lengths` and `inputs` of the manifest what to feed the inputs of the graph that it does
/// not mention, that have no default, and that have no documented name. By data flow from each
/// input, through operators that keep its elements (casts, reshapes, slices, …):
///
///   integers   that index the constant table with a row for each score, or the largest one: token
///              ids; another table, or an angle's factor: positions; a cache's batch axis: batch
///              rows; compared with themselves: segments
///   integers   of one element, or one for each batch row: a length; total where an operator takes
///              it as one (GroupQueryAttention, Attention) or as the end of a Range or Slice, else
///              past
///   floats     that are added to scores: an additive mask
///   any type   whose complement or comparison selects scores: a mask, of visible or of hidden keys
///              by what it is complemented and selected with
///
/// Floating-point inputs of three or more axes that are nothing of this are left out: they are what
/// an encoder hands over. All others are InputFeed::Any. Extents are told by the symbols of token
/// ids and caches, and otherwise by their place.
void describeInputs(const ir::Graph& graph, ir::Manifest& manifest);

} // namespace kvopt::analysis
