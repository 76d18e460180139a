// Element offsets for GatherElements (reads) and ScatterElements (writes).
#pragma once

#include "runtime/kernels/support/integer_input.h"

namespace kvopt::kernels {

/// For each position of operand 1 (indices) in row-major order: the offset in elements into
/// contiguous `data` of the same position, with the coordinate on attribute `axis` replaced by the
/// index. Negative indices count from the end. An error of the node if the ranks differ, if indices
/// are larger than `data` on another axis, or if an index is out of range. The offsets are in
/// scratch memory.
llvm::Expected<IntegerList> elementOffsets(runtime::KernelContext& context,
                                           const runtime::TensorView& data);

} // namespace kvopt::kernels
