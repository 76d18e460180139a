// Construction of ONNX messages that share unedited parts. Private to export.
#pragma once

#include "ir/model.h"
#include "ir/onnx/external_data.h"
#include "ir/onnx/source.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"

namespace kvopt::ir {

/// Builds the message of one model. Messages that still describe the model are shared with its
/// source by pointer. Others start as a copy of their source without its repeated fields, so that
/// unknown fields and doc strings are preserved.
///
///  A declared type is kept if the value's type is unchanged since import or does not contradict it
///  by element type, by rank, by an extent, or by a symbol that is not in the file. If an input has
///  an open extent where the file has a number, declared numbers are kept only if they are known to
///  hold. Contradicted declarations of intermediate values are dropped; those of inputs and outputs
///  are updated. Changed types of inputs, and types of outputs that a new node produces, are
///  written as they are.
class ModelWriter {
public:
  /// The message is allocated in `storage`; it refers to messages of the model's source and to
  /// tensors. Tensors that have a place in `externalData` are written as references to it.
  ModelWriter(const Model& sourceModel, google::protobuf::Arena& storage,
              ExternalData& externalData)
      : model(sourceModel), source(sourceModel.source().get()), arena(storage),
        external(externalData) {}

  llvm::Expected<const onnx::ModelProto*> write();

private:
  /// Agreement with a value's type that a declaration requires to be kept.
  enum class Agreement {
    Equal,  ///< The type was set by an edit: inputs, results of new nodes.
    NoNews, ///< The type was inferred: it may be less specific, or rename symbols of the file.
  };

  template <typename Message> using Repeated = google::protobuf::RepeatedPtrField<Message>;
  using Entries = Repeated<onnx::StringStringEntryProto>;

  void writeOpsets(const OpsetImports& opsets, const Repeated<onnx::OperatorSetIdProto>* original,
                   Repeated<onnx::OperatorSetIdProto>& out);
  void writeMetadata(const Metadata& metadata, const Entries* original, Entries& out);
  llvm::Error writeFunction(const Function& function, Repeated<onnx::FunctionProto>& out);
  llvm::Error writeGraph(const Graph& graph, onnx::GraphProto& out);
  void writeInputs(const Graph& graph, onnx::GraphProto& out);
  void writeOutputs(const Graph& graph, onnx::GraphProto& out);
  void writeValueInfo(const Graph& graph, onnx::GraphProto& out);
  llvm::Error writeInitializers(const Graph& graph, onnx::GraphProto& out);
  llvm::Error writeSparseInitializers(const Graph& graph, onnx::GraphProto& out);
  void writeQuantization(const Graph& graph, onnx::GraphProto& out);
  llvm::Error writeNode(const Node& node, Repeated<onnx::NodeProto>& out);
  llvm::Error writeAttribute(const NamedAttribute& attribute, Repeated<onnx::AttributeProto>& out);
  llvm::Error writeAttributeValue(const Attribute& value, onnx::AttributeProto& out);
  llvm::Error writeTensorNamed(llvm::StringRef name, const TensorData& tensor,
                               Repeated<onnx::TensorProto>& out);
  llvm::Error fillTensor(const TensorData& tensor, onnx::TensorProto& out);
  llvm::Error moveTensor(const TensorData& tensor, const onnx::TensorProto& message,
                         onnx::TensorProto& out);
  bool mustMove(const onnx::AttributeProto& attribute) const;
  bool holdsMoved(const Node& node) const;
  llvm::Error reserveBytes(uint64_t bytes);
  void writeDeclaration(const Value& value, const onnx::ValueInfoProto* original,
                        Agreement agreement, Repeated<onnx::ValueInfoProto>& out);
  bool declarationHolds(const onnx::ValueInfoProto& declaration, const TensorType& type,
                        Agreement agreement);
  bool dimHolds(const Dim& declared, const Dim& current, Agreement agreement);
  /// Whether an input has an open extent where the file declares a number.
  bool freesExtents();
  const llvm::StringSet<>& declaredSymbols();

  google::protobuf::Arena* sourceArena() const { return source ? &source->arena : nullptr; }

  const Model& model;
  Model::Source* source;
  google::protobuf::Arena& arena;
  ExternalData& external;
  uint64_t copiedBytes = 0;
  std::optional<llvm::StringSet<>> symbols;
  std::optional<bool> frees;
};

/// Whether the model's own fields, opsets, metadata and input types equal those of its source. The
/// graphs' edit count does not include edits of these.
bool headerMatchesSource(const Model& model);

} // namespace kvopt::ir
