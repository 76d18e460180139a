// RingSlots: the positions in the slots of a ring, and their visibility, in standard operators.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// A ring of C slots after a step of S tokens that follow P earlier tokens: the row of position p
/// is in slot p mod C. All layers of a model share the values computed from the same lengths.
class RingSlots {
public:
  /// `pastLength` is P, int64 [1]; `query` is [B,H,S,D]. A step of more than `stepLimit` tokens
  /// would overwrite visible slots; it makes the index of a Gather too large, which is an error in
  /// every engine.
  RingSlots(ir::Value& pastLength, ir::Value& query, int64_t slotCount, int64_t stepLimit,
            builders::AttentionBuilder& builder);

  /// bool [1,1,S,C]: slots that hold a row of the step, or a row before it that a step of one token
  /// sees. With `causal`, slots after the query's position are hidden; with a `window` other than
  /// 0, so are slots `window` or more positions before it.
  ir::Value& visible(bool causal, int64_t window);
  /// The columns of `mask` in the order of slots, [.., C]; the mask itself if its column applies to
  /// every key. The mask is boolean or additive, and its last column is that of the last key.
  ir::Value& maskColumns(ir::Value& mask);

private:
  ir::Value& gathered(ir::Value& mask);

  builders::AttentionBuilder& build;
  ir::Value& past;
  ir::Value& rows; ///< the query
  int64_t slots;
  int64_t kept;                   ///< number of earlier rows that are visible
  ir::Value* total = nullptr;     ///< int64 [1]: P + S
  ir::Value* positions = nullptr; ///< int64 [C]: positions in the slots; negative if unused
};

} // namespace kvopt::targets
