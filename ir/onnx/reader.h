// Construction of graphs from ONNX messages. Private to import.
#pragma once

#include "ir/model.h"
#include "ir/node_order.h"
#include "ir/onnx/source.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::ir {

/// Reads the graphs of one model. Errors name the node and value, not the file.
class GraphReader {
public:
  explicit GraphReader(std::shared_ptr<Model::Source> modelSource)
      : source(std::move(modelSource)) {}

  /// Fills an empty graph. The message must belong to the source.
  llvm::Error read(const onnx::GraphProto& message, Graph& graph);
  /// Fills an empty function, except for its opset imports, which are already set.
  llvm::Error read(const onnx::FunctionProto& message, Function& function);

private:
  using Declarations = llvm::StringMap<const onnx::ValueInfoProto*>;

  llvm::Error readInputs(const onnx::GraphProto& message, Graph& graph);
  llvm::Error readInitializers(const onnx::GraphProto& message, Graph& graph);
  llvm::Error readInitializer(const onnx::TensorProto& message, Graph& graph);
  llvm::Error readSparseInitializer(const onnx::SparseTensorProto& message, Graph& graph);
  llvm::Error readOutputs(const onnx::GraphProto& message, Graph& graph);
  llvm::Error readNodes(const NodeMessages& messages, Graph& graph, const Declarations& declared);
  llvm::Error readNode(const onnx::NodeProto& message, Graph& graph, const Declarations& declared);
  llvm::Error readAttributes(const onnx::NodeProto& message, Node& node);
  llvm::Expected<Attribute> readAttribute(const onnx::AttributeProto& message, Graph& scope,
                                          Node* holder);
  llvm::Expected<Attribute> readAttributeValue(const onnx::AttributeProto& message,
                                               AttributeKind kind, Graph& scope, Node* holder);
  llvm::Expected<std::unique_ptr<Graph>> readSubgraph(const onnx::GraphProto& message, Graph& scope,
                                                      Node& holder);
  llvm::Expected<TensorRef> readTensor(const onnx::TensorProto& message);
  llvm::Error checkNewName(llvm::StringRef name, const Graph& graph, llvm::StringRef what);

  std::shared_ptr<Model::Source> source;
  unsigned depth = 0;
};

/// The value of that name that a node or output of `graph` may read: defined in `graph`, or in an
/// enclosing graph before the node that holds `graph`. Null if there is none. Correct while graphs
/// are being built: every existing value is defined earlier, except for the holding nodes' own
/// results.
Value* visibleValue(const Graph& graph, llvm::StringRef name);

} // namespace kvopt::ir
