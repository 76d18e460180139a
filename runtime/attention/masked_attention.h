// The second half of ONNX Runtime's MultiHeadAttention and Attention: past, mask, attention.
#pragma once

#include "runtime/attention/attention_call.h"

namespace kvopt::runtime {

/// What the two operators make of their operands.
struct MaskedAttention {
  TensorView query;     ///< [B,H,S,D]
  TensorView key;       ///< [B,H,T,D], the past included
  TensorView value;     ///< [B,H,T,Dv]
  int64_t pastRows = 0; ///< how many of the T rows are the past's
  /// Operand of integers, see PaddingMaskRequest::visible.
  std::optional<unsigned> paddingOperand;
  bool hasStartPositions = false; ///< the operand may be [2B]
  std::optional<unsigned> biasOperand;
};

/// Result 0 [B,S,H*Dv], with the node's attributes scale (1 / sqrt(D) unless it is set and not 0),
/// unidirectional and mask_filter_value.
///
/// With unidirectional = 1, row i sees keys up to pastRows + i, the last row all T of them: what
/// ONNX Runtime's CPU kernel computes where there are more or fewer new keys than rows. Other
/// numbers than 1 are off, as they are there.
llvm::Error maskedAttentionResult(KernelContext& context, const MaskedAttention& attention);

} // namespace kvopt::runtime
