// Operands of com.microsoft::GroupQueryAttention. The header includes nothing, so that engines
// without a graph read it, too.
#pragma once

namespace kvopt::ir::gqa {

/// Operands in the order of the operator's definition in ONNX Runtime 1.30.
enum Operand : unsigned {
  Query,
  Key,
  Value,
  PastKey,
  PastValue,
  SequenceLengths,
  TotalLength,
  CosineCache,
  SineCache,
  PositionIds,
  Bias,
  HeadSink,
  KeyScale,
  ValueScale,
  QueryNormWeight,
  KeyNormWeight,
  OperandCount,
};

} // namespace kvopt::ir::gqa
