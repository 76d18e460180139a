// Operands of ONNX's Attention. The header includes nothing, so that engines without a graph read
// it, too.
#pragma once

namespace kvopt::ir::onnx_attention {

/// Operands in the order of the operator's definition in opset 24.
enum Operand : unsigned {
  Query,
  Key,
  Value,
  Mask,
  PastKey,
  PastValue,
  KeyLengths, ///< nonpad_kv_seqlen, from opset 24 on
  OperandCount,
};

} // namespace kvopt::ir::onnx_attention
