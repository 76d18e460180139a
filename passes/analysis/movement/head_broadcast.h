// Where keys or values that are repeated over the query heads come from.
#pragma once

#include "passes/analysis/movement/index_map.h"
#include "passes/pattern/shape_builder.h"

namespace kvopt::analysis {

/// A tensor of `groups` heads that keys or values [B,H,T,D] are a repetition of: head h is head
/// floor(h / (H / groups)) of it.
struct HeadSource {
  ir::Value* value;
  ir::Dim groups;
  /// How `value` becomes [B,groups,T,D].
  IndexMap::Repetition shape;
  /// Nodes of one data operand that change each element by itself (Cast, Mul by a constant scalar),
  /// last first; to be applied after that.
  llvm::SmallVector<ir::Node*, 2> pointwise;

  /// `value` is [B,groups,T,D] already.
  bool isDirect() const;
};

/// What `heads` can be taken from, nearest first; `heads` itself is the first. Empty if its rank is
/// not four. `interleaved` is set if heads are repeated in the order h mod groups somewhere.
std::vector<HeadSource> headSources(ir::Value& heads, bool& interleaved);

/// The most convenient of the sources with that many groups; null if there is none.
const HeadSource* bestSource(llvm::ArrayRef<HeadSource> sources, const ir::Dim& groups);

/// The operand whose elements a node changes one by one, all in the same way, as a cast to another
/// type or a constant factor does; null if the node does something else.
ir::Value* pointwiseOperand(const ir::Node& node);

/// [B,groups,T,D] of a source; null if an extent cannot be had.
ir::Value* groupedHeads(const HeadSource& source, pattern::Rewriter& rewriter);

/// The target's shape before the repetition, made of `value`, the map's source; null if an extent
/// cannot be had.
ir::Value* beforeRepetition(ir::Value& value, const IndexMap::Repetition& shape,
                            pattern::Rewriter& rewriter);

} // namespace kvopt::analysis
