// Attention sinks as models spell them, as an operand of ai.kvopt::Sdpa.
#pragma once

#include "passes/pattern/rewriter.h"

#include <optional>

namespace kvopt::builders {

/// Logits that take part in the softmax of every row and weigh nothing: one per head.
struct SpelledSinks {
  ir::Value* perHead = nullptr; ///< [1,H,1,1]; leading axes may be missing
  std::optional<double> number; ///< the same for all heads, instead of `perHead`
  int64_t heads = 0;            ///< of `number`

  bool exist() const { return perHead || number; }
};

/// What is repeated over batch and rows to make `column` [B,H,S,1]; none exist if that is not one
/// number per head.
SpelledSinks sinksOfColumn(ir::Value& column, const ir::Dim& heads);

/// The same number for each of a known number of heads; none exist without both.
SpelledSinks sinksOfNumber(std::optional<double> number, const ir::Dim& heads);

/// float32 [H].
ir::Value& buildSinks(const SpelledSinks& sinks, pattern::Rewriter& rewriter);

} // namespace kvopt::builders
