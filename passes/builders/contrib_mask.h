// Masks of com.microsoft's MultiHeadAttention and Attention.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::builders {

/// Operands and attributes that hide keys.
struct ContribMask {
  /// Integers: a mask [B,T] or [B,S,T], positive for visible keys, or numbers of visible keys [B].
  /// Null if all keys are visible.
  ir::Value* visible = nullptr;
  ir::Value* bias = nullptr; ///< is added to the scores; null if there is none
  double filter = 0;         ///< number that is added for a key that `visible` hides
  bool causal = false;
};

/// Sets the mask of `parts`, which have the query and all keys, and whether they are causal.
///
/// The operators add the lowest float32, not -inf, for keys after a row's own. A row that sees none
/// of the earlier keys thus averages them and the later keys if they are hidden by the same number,
/// or if a bias may be as low. The mask then has the later keys, and the attention is not causal.
void setContribMask(AttentionBuilder::AttentionParts& parts, const ContribMask& mask,
                    ir::ElementType element, AttentionBuilder& build);

} // namespace kvopt::builders
