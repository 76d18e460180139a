// Visibility of keys for each row of an attention, as a boolean mask in standard operators.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// Conditions that hide keys. Row i of batch row b is at position firstPosition[b] + i.
struct KeyVisibility {
  bool hidesLaterKeys = false;        ///< keys after the row's position are hidden
  int64_t ahead = 0;                  ///< number of keys after the position that stay visible
  int64_t window = 0;                 ///< hidden: keys `window` or more before it; 0: none
  ir::Value* firstPosition = nullptr; ///< int64 [1] or [B]
  ir::Value* keyCount = nullptr;      ///< int64 [1] or [B]: first hidden key; null: none
};

/// bool [1|B,1,S,T] or [1|B,1,1,T]: whether a row sees a key; null if no key is hidden. S and T are
/// `rows` and `keys`, int64 scalars.
ir::Value* visibilityMask(const KeyVisibility& hidden, const builders::BuilderOperand& rows,
                          const builders::BuilderOperand& keys, builders::AttentionBuilder& build);

/// `mask` (boolean or additive; null for none) that also hides keys that are not `visible`.
ir::Value& withHiddenKeys(ir::Value* mask, ir::Value& visible, builders::AttentionBuilder& build);

/// The conjunction of both conditions; `first` may be null.
ir::Value& bothHold(ir::Value* first, ir::Value& second, builders::AttentionBuilder& build);

} // namespace kvopt::targets
