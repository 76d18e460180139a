// Every tensor of an ONNX model's message. Private to import and export.
#pragma once

#include "kvopt_onnx.pb.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace kvopt::ir {

using TensorMessageVisitor = llvm::function_ref<void(const onnx::TensorProto&)>;

/// Calls `visit` for every tensor of the model: of the main graph, of graphs and sparse tensors
/// within, of training information and of functions.
void forEachTensor(const onnx::ModelProto& model, TensorMessageVisitor visit);

bool isExternal(const onnx::TensorProto& message);

/// Whether a tensor of the attribute itself, not of graphs within, has external data.
bool holdsExternalTensor(const onnx::AttributeProto& attribute);

} // namespace kvopt::ir
