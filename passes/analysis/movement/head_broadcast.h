// Sources of keys or values that are repeated over the query heads.
#pragma once

#include "passes/analysis/movement/index_map.h"
#include "passes/pattern/shape_builder.h"

namespace kvopt::analysis {

/// A tensor of `groups` heads that keys or values [B,H,T,D] repeat: head h is its head floor(h / (H
/// / groups)).
struct HeadSource {
  ir::Value* value;
  ir::Dim groups;
  /// Movement that turns `value` into [B,groups,T,D].
  IndexMap::Repetition shape;
  /// Nodes with one data operand that change each element separately (Cast, Mul by a constant
  /// scalar), last first; to be applied after the movement.
  llvm::SmallVector<ir::Node*, 2> pointwise;

  /// `value` is [B,groups,T,D] already.
  bool isDirect() const;
};

/// Possible sources of `heads`, nearest first, starting with `heads` itself. Empty if its rank is
/// not four. `interleaved` is set if heads are repeated in the order h mod groups somewhere.
std::vector<HeadSource> headSources(ir::Value& heads, bool& interleaved);

/// The most convenient source with that number of groups; null if there is none.
const HeadSource* bestSource(llvm::ArrayRef<HeadSource> sources, const ir::Dim& groups);

/// The operand whose elements a node changes one by one in the same way, as a cast or a constant
/// factor does; null for other nodes.
ir::Value* pointwiseOperand(const ir::Node& node);

/// [B,groups,T,D] of a source; null if an extent is not available.
ir::Value* groupedHeads(const HeadSource& source, pattern::Rewriter& rewriter);

/// The target's shape before the repetition, computed from `value`, the map's source; null if an
/// extent is not available.
ir::Value* beforeRepetition(ir::Value& value, const IndexMap::Repetition& shape,
                            pattern::Rewriter& rewriter);

} // namespace kvopt::analysis
