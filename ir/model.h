// Model: a graph with its opsets, functions and metadata.
#pragma once

#include "ir/graph.h"
#include "support/confined_folder.h"

#include "llvm/ADT/StringMap.h"

namespace kvopt::onnx {
class FunctionProto;
class ModelProto;
} // namespace kvopt::onnx

namespace kvopt::ir {

/// A model-local function. The inputs and outputs of its body are those of the function; they have
/// no types. Attribute references in the body (`Attribute::isReference`) name attributes of the
/// function.
class Function {
public:
  Function(GraphContext& context, std::string functionDomain, std::string functionName)
      : domain(std::move(functionDomain)), name(std::move(functionName)), body(context, opsets) {}

  std::string domain;
  std::string name;
  std::string overload;
  std::string docString;
  OpsetImports opsets;
  /// Attributes that a call must give, and attributes with a default.
  std::vector<std::string> attributes;
  std::vector<NamedAttribute> defaults;
  Graph body;
  const onnx::FunctionProto* source = nullptr;
};

/// A complete model in memory. Everything that kvopt does not interpret (training information,
/// unknown fields, sparse tensors, doc strings) stays in the messages from which the model was
/// read, and is written back from there.
class Model {
public:
  /// An empty model. `registry` must outlive it.
  explicit Model(const OpRegistry& registry);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model();

  GraphContext& context() { return sharedContext; }
  Graph& graph() { return *mainGraph; }
  const Graph& graph() const { return *mainGraph; }

  int64_t irVersion = 8;
  OpsetImports opsets;
  std::string producerName;
  std::string producerVersion;
  std::string domain;
  int64_t modelVersion = 0;
  std::string docString;
  Metadata metadata;
  std::vector<std::unique_ptr<Function>> functions;

  /// File from which the model was read ("" if none), and folder of its external data.
  std::string path;
  ConfinedFolder folder;

  /// Sentences about names that the file gives to extents which are not equal. Import gave these
  /// extents different names.
  std::vector<std::string> unequalExtents;

  /// Value of a metadata entry; null if there is none.
  const std::string* findMetadata(llvm::StringRef key) const;
  void setMetadata(llvm::StringRef key, std::string value);
  void removeMetadata(llvm::StringRef key);
  /// The function of that domain, name and overload; null if there is none.
  Function* findFunction(OpName name, llvm::StringRef overload = "") const;
  /// The function that the node calls; null if it calls none.
  Function* findFunction(const Node& call) const;

  /// Whether the model was edited since it was read.
  bool isEdited() const { return differsFromFile || edits() != 0; }
  /// Notes an edit that no graph counts, such as one of functions or operator sets.
  void markEdited() { ++ownEdits; }
  /// Notes that the file describes the model differently, although both compute the same.
  void markRedescribed() { differsFromFile = true; }
  void resetEdited();

  /// Whether the model was edited after the metadata entry was read or set. Edits of metadata do
  /// not count.
  bool isOlderThanEdits(llvm::StringRef key) const { return editsAt.lookup(key) != edits(); }

  /// Data that the source messages need; private to import and export.
  struct Source;
  const std::shared_ptr<Source>& source() const { return sourceStorage; }
  void setSource(std::shared_ptr<Source> storage) { sourceStorage = std::move(storage); }

private:
  uint64_t edits() const { return ownEdits + sharedContext.edits(); }

  std::shared_ptr<Source> sourceStorage; // outlives the graphs that point into it
  GraphContext sharedContext;
  std::unique_ptr<Graph> mainGraph;
  uint64_t ownEdits = 0;
  bool differsFromFile = false;
  llvm::StringMap<uint64_t> editsAt; // edits when a metadata entry was set; 0 for those of the file
};

} // namespace kvopt::ir
