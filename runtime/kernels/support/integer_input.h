// Operands and attributes that steer a kernel: axes, shapes, positions.
#pragma once

#include "runtime/exec/kernel.h"

namespace kvopt::kernels {

/// The elements, in row-major order, of an integer operand of any integer type. An error of the
/// node for other types and for values beyond int64.
llvm::Expected<runtime::Extents> integersOf(runtime::KernelContext& context, unsigned operand);

/// Integers in scratch memory of the kernel's call: for as many as there are tokens, say.
using IntegerList = llvm::MutableArrayRef<int64_t>;
/// Uninitialized ones.
llvm::Expected<IntegerList> scratchIntegers(runtime::KernelContext& context, size_t count);
/// Like integersOf.
llvm::Expected<IntegerList> integerListOf(runtime::KernelContext& context, unsigned operand);

/// The one element of an integer operand; an error when it holds another number of elements.
llvm::Expected<int64_t> integerOf(runtime::KernelContext& context, unsigned operand);

/// `axis` in [0, rank), negative values counted from the end.
llvm::Expected<unsigned> axisOf(runtime::KernelContext& context, int64_t axis, unsigned rank);

/// The same for a list; an error when an axis is named twice. In the order given.
llvm::Expected<llvm::SmallVector<unsigned, 6>> axesOf(runtime::KernelContext& context,
                                                      llvm::ArrayRef<int64_t> axes, unsigned rank);

/// `index` in [0, extent), negative values counted from the end.
llvm::Expected<int64_t> indexOf(runtime::KernelContext& context, int64_t index, int64_t extent);

/// The product of extents; an error of the node when one is negative or on overflow.
llvm::Expected<int64_t> countOf(runtime::KernelContext& context, llvm::ArrayRef<int64_t> shape);

/// The product of some extents of one tensor. Meaningless, but defined, when it does not fit, which
/// a tensor without elements allows.
int64_t product(llvm::ArrayRef<int64_t> extents);

} // namespace kvopt::kernels
