// Operands of com.microsoft::PagedAttention.
#pragma once

namespace kvopt::ir::paged {

/// Operands in the order of the operator's definition in ONNX Runtime 1.30.
enum Operand : unsigned {
  Query,
  Key,
  Value,
  KeyCache,
  ValueCache,
  CumulativeLengths,
  PastLengths,
  BlockTable,
  CosineCache,
  SineCache,
  SlotMapping,
  HeadSink,
  QueryNormWeight,
  KeyNormWeight,
  KeyScale,
  ValueScale,
};

} // namespace kvopt::ir::paged
