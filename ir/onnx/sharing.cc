// Copies of messages without their large parts.
#include "ir/onnx/sharing.h"

namespace kvopt::ir {
namespace {

/// Empties a repeated field during its lifetime.
template <typename Message> class Withheld {
public:
  Withheld(google::protobuf::RepeatedPtrField<Message>* list, google::protobuf::Arena* arena)
      : field(list), contents(arena) {
    field->UnsafeArenaSwap(&contents);
  }
  Withheld(const Withheld&) = delete;
  Withheld& operator=(const Withheld&) = delete;
  ~Withheld() { field->UnsafeArenaSwap(&contents); }

private:
  google::protobuf::RepeatedPtrField<Message>* field;
  google::protobuf::RepeatedPtrField<Message> contents;
};

template <typename Message> Message& writable(const Message& message) {
  return const_cast<Message&>(message);
}

} // namespace

void copyShell(const onnx::ModelProto& message, google::protobuf::Arena* arena,
               onnx::ModelProto& out) {
  onnx::ModelProto& original = writable(message);
  Withheld opsets(original.mutable_opset_import(), arena);
  Withheld metadata(original.mutable_metadata_props(), arena);
  Withheld training(original.mutable_training_info(), arena);
  Withheld functions(original.mutable_functions(), arena);
  onnx::GraphProto* graph = original.unsafe_arena_release_graph();
  out.CopyFrom(original);
  original.unsafe_arena_set_allocated_graph(graph);
}

void copyShell(const onnx::GraphProto& message, google::protobuf::Arena* arena,
               onnx::GraphProto& out) {
  onnx::GraphProto& original = writable(message);
  Withheld nodes(original.mutable_node(), arena);
  Withheld initializers(original.mutable_initializer(), arena);
  Withheld sparse(original.mutable_sparse_initializer(), arena);
  Withheld inputs(original.mutable_input(), arena);
  Withheld outputs(original.mutable_output(), arena);
  Withheld infos(original.mutable_value_info(), arena);
  Withheld quantization(original.mutable_quantization_annotation(), arena);
  out.CopyFrom(original);
}

void copyShell(const onnx::FunctionProto& message, google::protobuf::Arena* arena,
               onnx::FunctionProto& out) {
  onnx::FunctionProto& original = writable(message);
  Withheld inputs(original.mutable_input(), arena);
  Withheld outputs(original.mutable_output(), arena);
  Withheld attributes(original.mutable_attribute(), arena);
  Withheld defaults(original.mutable_attribute_proto(), arena);
  Withheld nodes(original.mutable_node(), arena);
  Withheld opsets(original.mutable_opset_import(), arena);
  Withheld infos(original.mutable_value_info(), arena);
  out.CopyFrom(original);
}

void copyShell(const onnx::NodeProto& message, google::protobuf::Arena* arena,
               onnx::NodeProto& out) {
  onnx::NodeProto& original = writable(message);
  Withheld inputs(original.mutable_input(), arena);
  Withheld outputs(original.mutable_output(), arena);
  Withheld attributes(original.mutable_attribute(), arena);
  Withheld metadata(original.mutable_metadata_props(), arena);
  out.CopyFrom(original);
}

void copyShell(const onnx::AttributeProto& message, google::protobuf::Arena* arena,
               onnx::AttributeProto& out) {
  onnx::AttributeProto& original = writable(message);
  Withheld graphs(original.mutable_graphs(), arena);
  onnx::GraphProto* graph = original.has_g() ? original.unsafe_arena_release_g() : nullptr;
  out.CopyFrom(original);
  if (graph)
    original.unsafe_arena_set_allocated_g(graph);
}

} // namespace kvopt::ir
