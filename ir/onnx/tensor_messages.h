// Traversal of all tensors of an ONNX model's message. Private to import and export.
#pragma once

#include "kvopt_onnx.pb.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace kvopt::ir {

using TensorMessageVisitor = llvm::function_ref<void(const onnx::TensorProto&)>;

/// Calls `visit` for every tensor of the model: in the main graph, in graphs and sparse tensors
/// within it, in training information, and in functions.
void forEachTensor(const onnx::ModelProto& model, TensorMessageVisitor visit);

bool isExternal(const onnx::TensorProto& message);

/// Whether a tensor of the attribute itself, not of graphs within it, has external data.
bool holdsExternalTensor(const onnx::AttributeProto& attribute);

} // namespace kvopt::ir
