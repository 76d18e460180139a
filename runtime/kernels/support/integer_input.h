// Operands and attributes that control a kernel: axes, shapes, indices.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::kernels {

/// Elements in row-major order of an operand of any integer type. An error of the node for other
/// types and for values beyond int64.
llvm::Expected<runtime::Extents> integersOf(runtime::KernelContext& context, unsigned operand);

/// Integers in scratch memory of the kernel's call, for lists of any length.
using IntegerList = llvm::MutableArrayRef<int64_t>;
/// An uninitialized list.
llvm::Expected<IntegerList> scratchIntegers(runtime::KernelContext& context, size_t count);
/// The elements of an integer operand in scratch memory; see integersOf.
llvm::Expected<IntegerList> integerListOf(runtime::KernelContext& context, unsigned operand);

/// Single element of an integer operand; an error if the number of elements differs.
llvm::Expected<int64_t> integerOf(runtime::KernelContext& context, unsigned operand);

/// `axis` as a number in [0, rank); negative values count from the end.
llvm::Expected<unsigned> axisOf(runtime::KernelContext& context, int64_t axis, unsigned rank);

/// The same for a list, in its order; an error if an axis occurs twice.
llvm::Expected<llvm::SmallVector<unsigned, 6>> axesOf(runtime::KernelContext& context,
                                                      llvm::ArrayRef<int64_t> axes, unsigned rank);

/// `index` as a number in [0, extent); negative values count from the end.
llvm::Expected<int64_t> indexOf(runtime::KernelContext& context, int64_t index, int64_t extent);

/// Product of extents; an error of the node if one is negative or the product overflows.
llvm::Expected<int64_t> countOf(runtime::KernelContext& context, llvm::ArrayRef<int64_t> shape);

/// Product of some extents of one tensor. If it does not fit, which is possible for tensors without
/// elements, the result has no meaning, but is defined.
int64_t product(llvm::ArrayRef<int64_t> extents);

} // namespace kvopt::kernels
