// Pairs of model inputs and outputs that carry recurrent or convolution states.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt::analysis {

/// A state of fixed extents: an input, and the output that is its value after the step.
struct StatePair {
  const ir::Value* past = nullptr;
  const ir::Value* present = nullptr;
};

/// Pairs floating-point inputs, and integers that select no rows of tables, except `knownInputs`,
/// with outputs, except `knownOutputs`, of the same element type and extents that are computed from
/// them. All extents of such an input are fixed except possibly the batch: the first axis, or a
/// symbol that the output declares as well.
///
/// The state of an early layer reaches the outputs of all later layers. Among several candidates
/// the pair with the fewest operators in between is chosen first; an operator that carries a state
/// from an operand to a result (LSTM, GRU, RNN, LinearAttention, CausalConvWithState, Loop, Scan)
/// does not count. Equally near candidates are paired in the order of declaration, unless that
/// leaves an equally near input without a partner: then the output has none, either. Reading a
/// state's shape is not data flow, and an output that merely repeats an input is not a state.
///
/// Empty for a model without integer inputs: an encoder's input and output of equal extents are not
/// a state.
std::vector<StatePair> statesByDataFlow(const ir::Graph& graph,
                                        const llvm::DenseSet<const ir::Value*>& knownInputs,
                                        const llvm::DenseSet<const ir::Value*>& knownOutputs);

} // namespace kvopt::analysis
