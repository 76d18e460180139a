// The columns of latent rows that are the values.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

/// Columns [offset, offset + width) of each row.
struct LatentValues {
  int64_t offset;
  int64_t width;
};

/// The attributes v_offset and v_width of an operator over rows of `columns`; fails where the
/// values are not among these columns.
llvm::Expected<LatentValues> latentValues(const KernelContext& context, int64_t columns);

} // namespace kvopt::runtime
