// Which keys each row of an attention sees, as a boolean mask in standard operators.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// What hides keys. Row i of batch row b stands at position firstPosition[b] + i.
struct KeyVisibility {
  bool hidesLaterKeys = false;        ///< keys after the row's position
  int64_t ahead = 0;                  ///< how many of those it sees all the same, the next ones
  int64_t window = 0;                 ///< keys that many positions or more before it; 0: none
  ir::Value* firstPosition = nullptr; ///< int64 [1] or [B]
  ir::Value* keyCount = nullptr;      ///< int64 [1] or [B]: keys from there on; null: none
};

/// bool [1|B,1,S,T] or [1|B,1,1,T]: whether a row sees a key; null where no key is hidden. S and T
/// are `rows` and `keys`, int64 scalars.
ir::Value* visibilityMask(const KeyVisibility& hidden, const builders::BuilderOperand& rows,
                          const builders::BuilderOperand& keys, builders::AttentionBuilder& build);

/// `mask` (boolean or additive; null: none) which hides what is not `visible` as well.
ir::Value& withHiddenKeys(ir::Value* mask, ir::Value& visible, builders::AttentionBuilder& build);

/// Both conditions; `first` may be null.
ir::Value& bothHold(ir::Value* first, ir::Value& second, builders::AttentionBuilder& build);

} // namespace kvopt::targets
