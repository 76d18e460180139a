// Second half of ONNX Runtime's MultiHeadAttention and Attention: past, mask, attention.
#pragma once

#include "runtime/attention/attention_call.h"

namespace kvopt::runtime {

/// Operands that both operators prepare.
struct MaskedAttention {
  TensorView query;     ///< [B,H,S,D]
  TensorView key;       ///< [B,H,T,D], including the past
  TensorView value;     ///< [B,H,T,Dv]
  int64_t pastRows = 0; ///< number of the T rows that belong to the past
  /// Operand of integers; see PaddingMaskRequest::visible.
  std::optional<unsigned> paddingOperand;
  bool hasStartPositions = false; ///< whether the operand may have shape [2B]
  std::optional<unsigned> biasOperand;
};

/// Result 0 [B,S,H*Dv], with the node's attributes scale (1 / sqrt(D) if it is absent or 0),
/// unidirectional and mask_filter_value.
///
/// With unidirectional = 1, row i sees keys up to pastRows + i, and the last row sees all T. ONNX
/// Runtime's CPU kernel computes this if the numbers of new keys and rows differ. As there, values
/// other than 1 disable the option.
llvm::Error maskedAttentionResult(KernelContext& context, const MaskedAttention& attention);

} // namespace kvopt::runtime
