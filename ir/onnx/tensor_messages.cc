// Traversal of all tensors of a message.
#include "ir/onnx/tensor_messages.h"

#include "ir/onnx/source.h"

namespace kvopt::ir {
namespace {

/// The parser limits the nesting of graphs.
class TensorWalk {
public:
  explicit TensorWalk(TensorMessageVisitor visitor) : see(visitor) {}

  void walk(const onnx::ModelProto& model) {
    walk(model.graph());
    for (const onnx::TrainingInfoProto& training : model.training_info()) {
      walk(training.initialization());
      walk(training.algorithm());
    }
    for (const onnx::FunctionProto& function : model.functions()) {
      for (const onnx::NodeProto& node : function.node())
        walk(node);
      for (const onnx::AttributeProto& attribute : function.attribute_proto())
        walk(attribute);
    }
  }

private:
  void walk(const onnx::GraphProto& graph) {
    for (const onnx::TensorProto& tensor : graph.initializer())
      see(tensor);
    for (const onnx::SparseTensorProto& tensor : graph.sparse_initializer())
      walk(tensor);
    for (const onnx::NodeProto& node : graph.node())
      walk(node);
  }
  void walk(const onnx::NodeProto& node) {
    for (const onnx::AttributeProto& attribute : node.attribute())
      walk(attribute);
  }
  void walk(const onnx::AttributeProto& attribute) {
    if (attribute.has_t())
      see(attribute.t());
    if (attribute.has_g())
      walk(attribute.g());
    if (attribute.has_sparse_tensor())
      walk(attribute.sparse_tensor());
    for (const onnx::TensorProto& tensor : attribute.tensors())
      see(tensor);
    for (const onnx::GraphProto& graph : attribute.graphs())
      walk(graph);
    for (const onnx::SparseTensorProto& tensor : attribute.sparse_tensors())
      walk(tensor);
  }
  void walk(const onnx::SparseTensorProto& tensor) {
    see(tensor.values());
    see(tensor.indices());
  }

  TensorMessageVisitor see;
};

bool holdsExternalTensor(const onnx::SparseTensorProto& tensor) {
  return isExternal(tensor.values()) || isExternal(tensor.indices());
}

} // namespace

void forEachTensor(const onnx::ModelProto& model, TensorMessageVisitor visit) {
  TensorWalk(visit).walk(model);
}

const std::vector<const onnx::TensorProto*>& Model::Source::externalTensors() {
  std::call_once(externalOnce, [&] {
    forEachTensor(*message, [&](const onnx::TensorProto& tensor) {
      if (isExternal(tensor))
        external.push_back(&tensor);
    });
  });
  return external;
}

bool isExternal(const onnx::TensorProto& message) {
  return message.data_location() == onnx::TensorProto::EXTERNAL;
}

bool holdsExternalTensor(const onnx::AttributeProto& attribute) {
  bool found = (attribute.has_t() && isExternal(attribute.t())) ||
               (attribute.has_sparse_tensor() && holdsExternalTensor(attribute.sparse_tensor()));
  for (const onnx::TensorProto& tensor : attribute.tensors())
    found |= isExternal(tensor);
  for (const onnx::SparseTensorProto& tensor : attribute.sparse_tensors())
    found |= holdsExternalTensor(tensor);
  return found;
}

} // namespace kvopt::ir
