// Attention over keys and values in blocks, which the operators BlockKvSdpa and
// BlockQuantizedKvSdpa share.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

/// Where such an operator has its operands: the query, new keys and values, the mask and the sinks
/// are the first five.
struct BlockOperands {
  unsigned firstBlock;
  /// Whether rows are int8 codes: the scales of new keys and values are then the operands behind
  /// the sinks, and as many blocks of scales are behind those of keys and values.
  bool hasScales;
};

/// Computes the operator's result:
///
///   output = Sdpa over the rows of block 0, block 1, …, and then the new rows
///
/// The sums are those of attention over one piece: how many rows a block holds changes no bit.
llvm::Error attendToBlocks(KernelContext& context, const BlockOperands& given);

} // namespace kvopt::runtime
