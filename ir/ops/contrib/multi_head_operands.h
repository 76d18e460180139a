// Operands of com.microsoft::MultiHeadAttention. The header includes nothing, so that engines
// without a graph read it, too.
#pragma once

namespace kvopt::ir::mha {

/// Operands in the order of the operator's definition in ONNX Runtime 1.30.
enum Operand : unsigned {
  Query,
  Key,
  Value,
  ProjectionBias,
  PaddingMask,
  AttentionBias,
  PastKey,
  PastValue,
  PastLength,
  CacheIndirection,
  OperandCount,
};

} // namespace kvopt::ir::mha
