// RingSlots: which positions lie in the slots of a ring, and who sees them, in standard operators.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// A ring of C slots after a step of S tokens behind P earlier ones: the row of position p is in
/// slot p mod C. All layers of a model share what is computed from the same lengths.
class RingSlots {
public:
  /// `pastLength` is P, int64 [1]; `query` is [B,H,S,D]. A step of more than `stepLimit` tokens,
  /// which would take slots that are still seen, makes an index of a Gather too large: an error in
  /// every engine.
  RingSlots(ir::Value& pastLength, ir::Value& query, int64_t slotCount, int64_t stepLimit,
            builders::AttentionBuilder& builder);

  /// bool [1,1,S,C]: slots that hold a row of the step, or one of the rows before it
  /// that a step of one token sees; of those, with `causal`, none behind the query's position and,
  /// with a `window` that is not 0, none so many positions or more before it.
  ir::Value& visible(bool causal, int64_t window);
  /// The columns of `mask` (boolean or additive, its last column that of the last key) in the order
  /// of slots: [.., C], or the mask itself where its column is every key's.
  ir::Value& maskColumns(ir::Value& mask);

private:
  ir::Value& gathered(ir::Value& mask);

  builders::AttentionBuilder& build;
  ir::Value& past;
  ir::Value& rows; ///< the query
  int64_t slots;
  int64_t kept;                   ///< earlier rows that are seen
  ir::Value* total = nullptr;     ///< int64 [1]: P + S
  ir::Value* positions = nullptr; ///< int64 [C]: of the slots; negative where nothing was written
};

} // namespace kvopt::targets
