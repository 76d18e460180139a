// Tensor types and their messages. Private to import and export.
#pragma once

#include "ir/type.h"

#include "kvopt_onnx.pb.h"

namespace kvopt::ir {

/// Whether the message declares a type other than a tensor: a sequence, a map, an optional value,
/// or a sparse tensor.
bool declaresNonTensor(const onnx::ValueInfoProto& message);

/// The declared type; empty if there is none or it is not a tensor. An extent that is negative, or
/// an expression that kvopt does not support, is unknown.
TensorType declaredType(const onnx::ValueInfoProto& message);

/// Makes `message` declare `type`. Parts that are unknown in `type` keep their declaration if the
/// ranks agree.
void declareType(onnx::ValueInfoProto& message, const TensorType& type);

} // namespace kvopt::ir
