// Element offsets: where GatherElements reads and ScatterElements writes.
#pragma once

#include "runtime/kernels/support/integer_input.h"

namespace kvopt::kernels {

/// For each position of operand 1 (indices) in row-major order: the offset, in elements of the
/// contiguous `data`, of that position with the coordinate on attribute `axis` replaced by the
/// index. Negative indices count from the end. An error of the node when the ranks differ, when
/// indices are larger than `data` off the axis, or when an index is out of range. The offsets are
/// in scratch memory.
llvm::Expected<IntegerList> elementOffsets(runtime::KernelContext& context,
                                           const runtime::TensorView& data);

} // namespace kvopt::kernels
