// Numbers in rows of caches, read and changed one by one.
#pragma once

#include "runtime/memory/tensor_view.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace kvopt::driver {

/// Calls the function with the index of each element, in row-major order, and its offset from the
/// first one.
void forEachElement(const runtime::TensorView& view,
                    llvm::function_ref<void(int64_t index, int64_t offset)> call);

/// Whether elements are float, double, float16 or bfloat16, which the next two functions require.
bool hasNumbers(const runtime::TensorView& view);
double numberAt(const runtime::TensorView& view, int64_t offset);
void setNumber(const runtime::TensorView& view, int64_t offset, double number);

/// A number of ordinary size that differs from those of the next indices.
double fillingNumber(int64_t index);

} // namespace kvopt::driver
