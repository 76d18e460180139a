// Builds ONNX messages from models, sharing what was not edited. Private to export.
#pragma once

#include "ir/model.h"
#include "ir/onnx/external_data.h"
#include "ir/onnx/source.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"

namespace kvopt::ir {

/// Builds the message of one model. Messages that still say what the model says are shared by
/// pointer with the model's source; the others start as a copy of their source without its repeated
/// parts, so that unknown fields and doc strings stay.
///
/// A declared type is kept as long as the value's type is as import left it or does not contradict
/// it: by element type, by rank, by an extent, or by a symbol that the file does not know. Once an
/// input has an open extent where the file has a number, declared numbers are kept only where they
/// are known to hold.
/// Declarations of intermediate values that are contradicted are left out, those of inputs and
/// outputs are brought up to date. Changed types of inputs, and types of outputs that a new node
/// produces, are written as they are.
class ModelWriter {
public:
  /// The result lives on `storage`; it refers to messages of the model's source and tensors.
  /// Tensors that `externalData` has a place for are written as references to it.
  ModelWriter(const Model& sourceModel, google::protobuf::Arena& storage,
              ExternalData& externalData)
      : model(sourceModel), source(sourceModel.source().get()), arena(storage),
        external(externalData) {}

  llvm::Expected<const onnx::ModelProto*> write();

private:
  /// How closely a declaration must agree with a value's type to be kept.
  enum class Agreement {
    Equal,  ///< The type is what somebody set: inputs, results of new nodes.
    NoNews, ///< The type was inferred: it may say less, or rename what the file knows.
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

/// Whether the model's own fields, opsets, metadata and input types are those of its source. Edits
/// of these are not counted by the graphs.
bool headerMatchesSource(const Model& model);

} // namespace kvopt::ir
