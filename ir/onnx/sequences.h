// Sequences of tensors that are constructed and read within one graph.
#pragma once

#include "ir/graph.h"

namespace kvopt::ir {

/// Replaces reads of sequences by reads of their tensors: ConcatFromSequence of a SequenceConstruct
/// becomes a Concat, and SequenceAt with a constant index becomes an operand. Changes graphs of
/// attributes as well. The IR has no values of sequence type; nodes that use sequences in other
/// ways remain without a definition.
void joinSequences(Graph& graph);

} // namespace kvopt::ir
