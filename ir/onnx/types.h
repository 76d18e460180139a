// Tensor types and their messages. Private to import and export.
#pragma once

#include "ir/type.h"

#include "kvopt_onnx.pb.h"

namespace kvopt::ir {

/// Whether the message declares something that is no tensor: a sequence, a map, an optional value,
/// a sparse tensor.
bool declaresNonTensor(const onnx::ValueInfoProto& message);

/// The declared type; empty when there is none or it is no tensor. An extent that is negative, or
/// an expression kvopt does not understand, is unknown.
TensorType declaredType(const onnx::ValueInfoProto& message);

/// Makes `message` declare `type`. What `type` leaves unknown stays as it was declared, as far as
/// the ranks agree.
void declareType(onnx::ValueInfoProto& message, const TensorType& type);

} // namespace kvopt::ir
