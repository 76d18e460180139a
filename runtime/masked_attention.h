// The second half of ONNX Runtime's MultiHeadAttention and Attention: past, mask, attention.
#pragma once

#include "runtime/attention_call.h"

namespace kvopt {

/// What the two operators make of their operands.
struct MaskedAttention {
  TensorView query; ///< [B,H,S,D]
  TensorView key;   ///< [B,H,T,D], the past included
  TensorView value; ///< [B,H,T,Dv]
  /// Operand of integers, see PaddingMaskRequest::visible.
  std::optional<unsigned> paddingOperand;
  std::optional<unsigned> biasOperand;
};

/// Result 0 [B,S,H*Dv], with the node's attributes scale (1 / sqrt(D) unless it is set and not 0),
/// unidirectional and mask_filter_value.
llvm::Error maskedAttentionResult(KernelContext& context, const MaskedAttention& attention);

} // namespace kvopt
