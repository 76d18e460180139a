// Tensors of the interface and of the runtime.
#pragma once

#include "kvopt/kvopt.h"
#include "runtime/memory/buffer.h"

#include "llvm/Support/Error.h"

namespace kvopt::api {

/// A borrowed tensor as a view. Fails for a negative extent or stride, for extents whose product
/// overflows, for an element type that the runtime has no memory form of, and for no data.
llvm::Expected<runtime::TensorView> viewOf(const kvopt_tensor& tensor);

/// The same for a DLPack tensor in the memory of the CPU.
llvm::Expected<runtime::TensorView> viewOf(const DLManagedTensor& tensor);

/// A view as a borrowed tensor: its extents and strides are those of the view.
kvopt_tensor borrowed(const runtime::TensorView& view);

/// A DLPack tensor that keeps the memory of `tensor` alive. Fails for an element type that DLPack
/// does not have.
llvm::Expected<DLManagedTensor*> toDlpack(runtime::Tensor tensor);

} // namespace kvopt::api
