// Attention sinks in decomposed attention, as an operand of ai.kvopt::Sdpa.
#pragma once

#include "passes/pattern/rewriter.h"

#include <optional>

namespace kvopt::builders {

/// Logits, one per head, that take part in the softmax of every row and have no value rows.
struct SpelledSinks {
  ir::Value* perHead = nullptr; ///< [1,H,1,1]; leading axes may be missing
  std::optional<double> number; ///< the same for all heads, instead of `perHead`
  int64_t heads = 0;            ///< number of heads that share `number`

  bool exist() const { return perHead || number; }
};

/// The sinks that `column` [B,H,S,1] repeats over batch and rows; none if the column is not one
/// number per head.
SpelledSinks sinksOfColumn(ir::Value& column, const ir::Dim& heads);

/// The same number for each of a known number of heads; none if either is unknown.
SpelledSinks sinksOfNumber(std::optional<double> number, const ir::Dim& heads);

/// float32 [H].
ir::Value& buildSinks(const SpelledSinks& sinks, pattern::Rewriter& rewriter);

} // namespace kvopt::builders
