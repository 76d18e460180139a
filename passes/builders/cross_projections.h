// Keys and values of cross-attention that a decoder computes anew at every step, and the cut that
// makes inputs of them.
#pragma once

#include "passes/pattern/rewriter.h"

#include "llvm/ADT/DenseSet.h"

#include <string>
#include <vector>

namespace kvopt::builders {

/// Keys or values [B,G,T,D] of attention to another sequence, a function of what an encoder gave.
struct CrossProjection {
  ir::Value* rows = nullptr;
  std::string name; ///< of the input that takes their place: past_key_values.0.encoder.key
  llvm::SmallVector<ir::Node*, 1> attentions;
  unsigned operand = 1; ///< of each of them
};

/// Those of the attentions, ai.kvopt::Sdpa nodes of the graph, of which keys and values both are
/// computed from inputs of the other sequence alone: each has an axis of as many rows, at least one
/// other axis, none of the queries' tokens, and is none of the `caches`. Extents may come from
/// anywhere, where those inputs tell them. Names count the attentions.
std::vector<CrossProjection> findCrossProjections(llvm::ArrayRef<ir::Node*> attentions,
                                                  const llvm::DenseSet<const ir::Value*>& caches);

/// Makes an input of each. What is then computed for nothing is erased, with the inputs that it
/// alone read; where the extents of such an input are still read, they are told by the new ones.
void makeInputs(ir::Graph& graph, llvm::ArrayRef<CrossProjection> projections,
                pattern::Journal& journal);

/// The other half: leaves the projections of the graph, as its only outputs, under their names.
void keepProjections(ir::Graph& graph, llvm::ArrayRef<CrossProjection> projections,
                     pattern::Journal& journal);

} // namespace kvopt::builders
