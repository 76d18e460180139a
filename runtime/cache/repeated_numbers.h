// Filling of tensors with repeated numbers.
#pragma once

#include "runtime/memory/tensor_view.h"

namespace kvopt::runtime {

/// Fills a contiguous tensor with the numbers in turn. There is at least one. Supports
/// int64, int32, float, double and bool; other tensors are unchanged.
void fillRepeatedly(const TensorView& view, llvm::ArrayRef<double> numbers);

} // namespace kvopt::runtime
