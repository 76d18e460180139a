// Sequences of tensors that are taken apart in the graph that makes them.
#pragma once

#include "ir/graph.h"

namespace kvopt::ir {

/// Replaces what is read of a sequence by what reads its tensors: ConcatFromSequence of a
/// SequenceConstruct is a Concat, SequenceAt of one at a constant place is an operand. Graphs of
/// attributes are changed as well. The IR has no values of sequence type; sequences that are used
/// in another way stay nodes without a definition.
void joinSequences(Graph& graph);

} // namespace kvopt::ir
