// Copies a model through its messages, without large contents.
#include "ir/onnx/model_copy.h"

#include "ir/onnx/import.h"
#include "ir/onnx/sharing.h"
#include "ir/onnx/types.h"
#include "ir/onnx/writer.h"
#include "support/diagnostic.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::ir {
namespace {

/// Initializers of fewer bytes are copied.
constexpr int64_t leastSharedBytes = 1024;

/// Collects the graph and all graphs within it, depth first.
void collectGraphs(const Graph& graph, llvm::SmallVectorImpl<const Graph*>& graphs) {
  graphs.push_back(&graph);
  for (const Node& node : graph.nodes())
    for (const Graph* nested : node.subgraphs())
      collectGraphs(*nested, graphs);
}

/// Whether a copy shares the contents with the original.
bool isLarge(const TensorData& tensor) { return tensor.byteSize().value_or(0) >= leastSharedBytes; }

/// Contents that were left out of `copy`; null if none were. `from` is the original's graph.
TensorRef leftOutOf(const Value& copy, const Graph& from) {
  const Value* original = from.findValue(copy.name());
  const bool isLeftOut = copy.initializer() && original && original->initializer() &&
                         isLarge(*original->initializer());
  return isLeftOut ? original->initializer() : nullptr;
}

bool holdsLarge(const Attribute& attribute) {
  return attribute.kind() == AttributeKind::Tensor && !attribute.isReference() &&
         isLarge(*attribute.tensorValue());
}

/// Replaces tensors that were left out of `copy` with those of the same node in `from`.
void shareAttributes(const Graph& from, Node& copy) {
  if (llvm::none_of(copy.attributes(),
                    [](const NamedAttribute& attribute) { return holdsLarge(attribute.value); }))
    return;
  const Value* original = nullptr;
  for (const Value& result : copy.results())
    if (!result.isAbsent())
      original = from.findValue(result.name());
  assert(original && original->producer());
  for (const NamedAttribute& attribute : original->producer()->attributes())
    if (holdsLarge(attribute.value))
      copy.setAttribute(attribute.name, attribute.value.clone());
}

/// Shares contents of `from` that were left out of `to`.
void shareConstants(const Graph& from, Graph& to) {
  for (Node& node : to.nodes())
    shareAttributes(from, node);
  for (const std::unique_ptr<Value>& input : to.inputs())
    if (TensorRef data = leftOutOf(*input, from))
      to.setInputDefault(*input, std::move(data));
  llvm::SmallVector<Value*, 16> copies;
  for (const std::unique_ptr<Value>& initializer : to.initializers())
    copies.push_back(initializer.get());
  for (Value* copy : copies) {
    TensorRef data = leftOutOf(*copy, from);
    if (!data)
      continue;
    const std::string name = copy->name().str();
    Value& shared = to.addConstant(name, std::move(data));
    copy->replaceAllUsesWith(shared);
    to.removeInitializer(*copy);
    if (shared.name() != name)
      to.rename(shared, name);
  }
}

llvm::Expected<const onnx::ModelProto*> messageWithoutConstants(const Model& model,
                                                                google::protobuf::Arena& arena) {
  // There is no such file: missing contents are not read before they are replaced.
  ExternalData leftOut("shared", leastSharedBytes);
  leftOut.takesInline = true;
  return ModelWriter(model, arena, leftOut).write();
}

/// Copy of `model` from bytes. `from` are those graphs of the model that the copy contains.
llvm::Expected<std::unique_ptr<Model>> copyFromBytes(const Model& model, llvm::StringRef bytes,
                                                     llvm::ArrayRef<const Graph*> from) {
  auto copy = importModelBytes(std::as_bytes(std::span<const char>(bytes.data(), bytes.size())),
                               model.folder, model.graph().context().ops(), ModelLimits::none());
  if (!copy)
    return copy;
  llvm::SmallVector<const Graph*, 4> to;
  collectGraphs((*copy)->graph(), to);
  assert(from.size() == to.size());
  for (size_t i = 0; i < from.size(); ++i)
    shareConstants(*from[i], const_cast<Graph&>(*to[i])); // it belongs to the copy
  (*copy)->path = model.path;
  return copy;
}

/// Indices, in a list of messages, of those with a given name.
using Places = llvm::StringMap<llvm::SmallVector<int, 1>>;

template <typename Message, typename NameOf>
Places placesByName(const google::protobuf::RepeatedPtrField<Message>& messages, NameOf nameOf) {
  Places places;
  for (int i = 0; i < messages.size(); ++i)
    places[nameOf(messages.Get(i))].push_back(i);
  return places;
}

/// Appends the messages with one of the names, in the order of the list.
template <typename Message>
void shareNamed(const google::protobuf::RepeatedPtrField<Message>& messages, const Places& places,
                const llvm::SetVector<llvm::StringRef>& names,
                google::protobuf::RepeatedPtrField<Message>& out) {
  std::vector<int> chosen;
  for (llvm::StringRef name : names)
    if (auto found = places.find(name); found != places.end())
      chosen.insert(chosen.end(), found->second.begin(), found->second.end());
  llvm::sort(chosen);
  for (int place : chosen)
    shareOne(messages.Get(place), out);
}

/// Contents of a part.
struct PartContents {
  std::vector<int> nodes;                 ///< indices in the graph
  llvm::SetVector<llvm::StringRef> names; ///< names of all values
};

} // namespace

llvm::Expected<std::unique_ptr<Model>> copySharingConstants(const Model& model) {
  google::protobuf::Arena arena;
  auto message = messageWithoutConstants(model, arena);
  if (!message)
    return message.takeError();
  std::string bytes;
  if (!(*message)->SerializePartialToString(&bytes))
    return ioError("cannot serialize");
  llvm::SmallVector<const Graph*, 4> graphs;
  collectGraphs(model.graph(), graphs);
  return copyFromBytes(model, bytes, graphs);
}

/// Message of a model and the positions of its parts.
struct PartCopier::Messages {
  explicit Messages(const Model& copied) : model(copied) {}

  llvm::Error write(llvm::ArrayRef<llvm::StringRef> omittedMetadata);
  PartContents contentsOf(const GraphPart& part) const;
  void describeGiven(const GraphPart& part, onnx::GraphProto& out) const;
  void shareNodes(const PartContents& contents, const GraphPart& part,
                  google::protobuf::Arena& storage, onnx::GraphProto& out) const;
  llvm::Expected<std::unique_ptr<Model>> copy(const GraphPart& part) const;

  const Model& model;
  google::protobuf::Arena arena;
  const onnx::GraphProto* graph = nullptr;
  std::string header; ///< serialized model without the lists of its graph
  std::vector<const Node*> nodes;
  llvm::DenseMap<const Node*, int> placeOfNode;
  Places inputs, outputs, infos, initializers, sparse, annotations;
};

llvm::Error PartCopier::Messages::write(llvm::ArrayRef<llvm::StringRef> omittedMetadata) {
  auto written = messageWithoutConstants(model, arena);
  if (!written)
    return written.takeError();
  const onnx::ModelProto& whole = **written;
  graph = &whole.graph();
  auto& shell = *google::protobuf::Arena::CreateMessage<onnx::ModelProto>(&arena);
  copyShell(whole, &arena, shell);
  copyShell(whole.graph(), &arena, *shell.mutable_graph());
  shareAll(whole.opset_import(), *shell.mutable_opset_import());
  shareAll(whole.training_info(), *shell.mutable_training_info());
  shareAll(whole.functions(), *shell.mutable_functions());
  for (const onnx::StringStringEntryProto& entry : whole.metadata_props())
    if (!llvm::is_contained(omittedMetadata, llvm::StringRef(entry.key())))
      shareOne(entry, *shell.mutable_metadata_props());
  if (!shell.SerializePartialToString(&header))
    return ioError("cannot serialize");
  for (const Node& node : model.graph().nodes()) {
    placeOfNode[&node] = static_cast<int>(nodes.size());
    nodes.push_back(&node);
  }
  const auto named = [](const auto& message) -> llvm::StringRef { return message.name(); };
  inputs = placesByName(graph->input(), named);
  outputs = placesByName(graph->output(), named);
  infos = placesByName(graph->value_info(), named);
  initializers = placesByName(graph->initializer(), named);
  sparse = placesByName(graph->sparse_initializer(),
                        [](const onnx::SparseTensorProto& message) -> llvm::StringRef {
                          return message.values().name();
                        });
  annotations = placesByName(graph->quantization_annotation(),
                             [](const onnx::TensorAnnotation& message) -> llvm::StringRef {
                               return message.tensor_name();
                             });
  return llvm::Error::success();
}

PartContents PartCopier::Messages::contentsOf(const GraphPart& part) const {
  PartContents contents;
  const llvm::DenseSet<const Value*> given(part.inputs.begin(), part.inputs.end());
  llvm::DenseSet<const Node*> seen;
  llvm::SmallVector<const Value*, 32> pending;
  const auto read = [&](const Value* value) {
    if (value && contents.names.insert(value->name()))
      pending.push_back(value);
  };
  for (const Value* output : part.outputs)
    read(output);
  while (!pending.empty()) {
    const Value* value = pending.pop_back_val();
    const Node* producer = value->producer();
    if (!producer || given.contains(value) || !seen.insert(producer).second)
      continue;
    contents.nodes.push_back(placeOfNode.lookup(producer));
    for (const Value& result : producer->results())
      if (!result.isAbsent())
        contents.names.insert(result.name());
    for (const Use& use : producer->operands())
      read(use.value());
    for (const Value* captured : capturedValues(*producer))
      read(captured);
  }
  llvm::sort(contents.nodes);
  return contents;
}

/// Declares inputs that the graph itself computes.
void PartCopier::Messages::describeGiven(const GraphPart& part, onnx::GraphProto& out) const {
  for (const Value* value : part.inputs) {
    if (value->isGraphInput())
      continue;
    onnx::ValueInfoProto& declaration = *out.add_input();
    declaration.set_name(value->name().str());
    declareType(declaration, value->type());
  }
}

/// Omits results that are given to the part from nodes that compute other results of it.
void PartCopier::Messages::shareNodes(const PartContents& contents, const GraphPart& part,
                                      google::protobuf::Arena& storage,
                                      onnx::GraphProto& out) const {
  const llvm::DenseSet<const Value*> given(part.inputs.begin(), part.inputs.end());
  for (int place : contents.nodes) {
    const llvm::ArrayRef<Value> results = nodes[static_cast<size_t>(place)]->results();
    const onnx::NodeProto& message = graph->node(place);
    if (llvm::none_of(results, [&](const Value& result) { return given.contains(&result); })) {
      shareOne(message, *out.mutable_node());
      continue;
    }
    auto& changed = *google::protobuf::Arena::CreateMessage<onnx::NodeProto>(&storage);
    changed.CopyFrom(message);
    for (size_t i = 0; i < results.size(); ++i)
      if (given.contains(&results[i]))
        changed.set_output(static_cast<int>(i), "");
    shareOne(changed, *out.mutable_node());
  }
}

llvm::Expected<std::unique_ptr<Model>> PartCopier::Messages::copy(const GraphPart& part) const {
  const PartContents contents = contentsOf(part);
  google::protobuf::Arena storage;
  auto& lists = *google::protobuf::Arena::CreateMessage<onnx::ModelProto>(&storage);
  onnx::GraphProto& out = *lists.mutable_graph();
  llvm::SetVector<llvm::StringRef> computed;
  for (const Value* output : part.outputs)
    computed.insert(output->name());
  shareNamed(graph->input(), inputs, contents.names, *out.mutable_input());
  describeGiven(part, out);
  shareNamed(graph->output(), outputs, computed, *out.mutable_output());
  shareNamed(graph->value_info(), infos, contents.names, *out.mutable_value_info());
  shareNamed(graph->initializer(), initializers, contents.names, *out.mutable_initializer());
  shareNamed(graph->sparse_initializer(), sparse, contents.names,
             *out.mutable_sparse_initializer());
  shareNamed(graph->quantization_annotation(), annotations, contents.names,
             *out.mutable_quantization_annotation());
  shareNodes(contents, part, storage, out);
  std::string bytes;
  if (!lists.SerializePartialToString(&bytes))
    return ioError("cannot serialize");
  llvm::SmallVector<const Graph*, 4> graphs(1, &model.graph());
  for (int place : contents.nodes)
    for (const Graph* nested : nodes[static_cast<size_t>(place)]->subgraphs())
      collectGraphs(*nested, graphs);
  // The reader merges concatenated messages.
  return copyFromBytes(model, header + bytes, graphs);
}

PartCopier::PartCopier(std::unique_ptr<Messages> written) : messages(std::move(written)) {}
PartCopier::PartCopier(PartCopier&&) noexcept = default;
PartCopier& PartCopier::operator=(PartCopier&&) noexcept = default;
PartCopier::~PartCopier() = default;

llvm::Expected<PartCopier> PartCopier::create(const Model& model,
                                              llvm::ArrayRef<llvm::StringRef> omittedMetadata) {
  auto messages = std::make_unique<Messages>(model);
  if (llvm::Error error = messages->write(omittedMetadata))
    return error;
  return PartCopier(std::move(messages));
}

llvm::Expected<std::unique_ptr<Model>> PartCopier::copy(const GraphPart& part) const {
  return messages->copy(part);
}

} // namespace kvopt::ir
