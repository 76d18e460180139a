// Keys and values of cross-attention that a decoder computes at every step, and their replacement
// by inputs.
#pragma once

#include "passes/pattern/rewriter.h"

#include "llvm/ADT/DenseSet.h"

#include <string>
#include <vector>

namespace kvopt::builders {

/// Keys or values [B,G,T,D] of attention to another sequence, computed from an encoder's output.
struct CrossProjection {
  ir::Value* rows = nullptr;
  std::string name; ///< name of the new input: past_key_values.0.encoder.key
  llvm::SmallVector<ir::Node*, 1> attentions;
  unsigned operand = 1; ///< operand index in each of them
};

/// Projections of those `attentions`, ai.kvopt::Sdpa nodes of the graph, whose keys and values are
/// both computed from inputs of the other sequence alone. Each such input has an axis with the same
/// number of rows and at least one other axis, has no axis of the queries' tokens, and is not in
/// `caches`. Extents may come from anywhere if those inputs determine them. Names count the
/// attentions.
std::vector<CrossProjection> findCrossProjections(llvm::ArrayRef<ir::Node*> attentions,
                                                  const llvm::DenseSet<const ir::Value*>& caches);

/// Makes an input of each projection. Computation that becomes unused is erased, with the inputs
/// that it alone read; if the extents of such an input are still read, they come from the new
/// inputs.
void makeInputs(ir::Graph& graph, llvm::ArrayRef<CrossProjection> projections,
                pattern::Journal& journal);

/// The other half of the model: keeps the projections as the only outputs of the graph, under their
/// names.
void keepProjections(ir::Graph& graph, llvm::ArrayRef<CrossProjection> projections,
                     pattern::Journal& journal);

} // namespace kvopt::builders
