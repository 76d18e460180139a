// Sharing of messages by pointer, and copies of messages without their large parts. Private to
// export.
#pragma once

#include "kvopt_onnx.pb.h"

#include <google/protobuf/arena.h>

namespace kvopt::ir {

/// Appends `message` itself without taking ownership. `out` belongs to an arena and must be
/// destroyed before the message.
template <typename Message>
void shareOne(const Message& message, google::protobuf::RepeatedPtrField<Message>& out) {
  out.UnsafeArenaAddAllocated(const_cast<Message*>(&message));
}

template <typename Message>
void shareAll(const google::protobuf::RepeatedPtrField<Message>& messages,
              google::protobuf::RepeatedPtrField<Message>& out) {
  for (const Message& message : messages)
    shareOne(message, out);
}

/// Copies all fields except those that export rebuilds (for nodes: operands, results, attributes,
/// metadata; for attributes: subgraphs; for graphs and functions: all lists). Fields that kvopt
/// does not know are copied. `message` belongs to `arena`. It is taken apart temporarily, so other
/// threads must not use it meanwhile.
void copyShell(const onnx::ModelProto& message, google::protobuf::Arena* arena,
               onnx::ModelProto& out);
void copyShell(const onnx::GraphProto& message, google::protobuf::Arena* arena,
               onnx::GraphProto& out);
void copyShell(const onnx::FunctionProto& message, google::protobuf::Arena* arena,
               onnx::FunctionProto& out);
void copyShell(const onnx::NodeProto& message, google::protobuf::Arena* arena,
               onnx::NodeProto& out);
void copyShell(const onnx::AttributeProto& message, google::protobuf::Arena* arena,
               onnx::AttributeProto& out);

} // namespace kvopt::ir
