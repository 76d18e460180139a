// Messages of models, functions, graphs and nodes.
#include "ir/onnx/writer.h"

#include "ir/manifest/written_claim.h"
#include "ir/onnx/sharing.h"
#include "ir/onnx/tensor_messages.h"
#include "ir/onnx/types.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <climits>
#include <limits>

namespace kvopt::ir {

namespace {

template <typename Names, typename Values, typename NameOf>
bool namesMatch(const Names& names, const Values& values, NameOf nameOf) {
  if (static_cast<size_t>(names.size()) != values.size())
    return false;
  for (size_t i = 0; i < values.size(); ++i)
    if (llvm::StringRef(names[static_cast<int>(i)]) != nameOf(values[i]))
      return false;
  return true;
}

llvm::StringRef operandName(const Use& use) {
  return use.value() ? use.value()->name() : llvm::StringRef();
}
llvm::StringRef resultName(const Value& value) { return value.name(); }

/// Whether the node's source message still describes it.
bool matchesSource(const Node& node) {
  const onnx::NodeProto* message = node.source();
  if (!message || node.isEdited())
    return false;
  if (message->name() != node.name() || message->overload() != node.overload() ||
      OpName(message->domain(), message->op_type()) != node.op())
    return false;
  if (static_cast<size_t>(message->attribute_size()) != node.attributes().size())
    return false;
  for (const NamedAttribute& attribute : node.attributes())
    // Edits in a subgraph do not mark the node that holds it.
    if (!attribute.value.source() || !attribute.value.graphs().empty())
      return false;
  return namesMatch(message->input(), node.operands(), operandName) &&
         namesMatch(message->output(), node.results(), resultName);
}

bool sameMetadata(const Metadata& metadata,
                  const google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>& entries) {
  if (static_cast<size_t>(entries.size()) != metadata.size())
    return false;
  for (size_t i = 0; i < metadata.size(); ++i) {
    const onnx::StringStringEntryProto& entry = entries[static_cast<int>(i)];
    if (entry.key() != metadata[i].first || entry.value() != metadata[i].second)
      return false;
  }
  return true;
}

void writeNodeShell(const Node& node, google::protobuf::Arena* sourceArena, onnx::NodeProto& out) {
  if (node.source())
    copyShell(*node.source(), sourceArena, out);
  if (out.name() != node.name())
    out.set_name(node.name().str());
  if (out.overload() != node.overload())
    out.set_overload(node.overload().str());
  if (OpName(out.domain(), out.op_type()) != node.op()) {
    out.set_op_type(node.op().type().str());
    if (node.op().isOnnx())
      out.clear_domain();
    else
      out.set_domain(node.op().domain().str());
  }
  for (const Use& use : node.operands())
    out.add_input(operandName(use).str());
  for (const Value& result : node.results())
    out.add_output(result.name().str());
}

} // namespace

bool headerMatchesSource(const Model& model) {
  const onnx::ModelProto& message = *model.source()->message;
  if (message.ir_version() != model.irVersion || message.producer_name() != model.producerName ||
      message.producer_version() != model.producerVersion || message.domain() != model.domain ||
      message.model_version() != model.modelVersion || message.doc_string() != model.docString ||
      !sameMetadata(model.metadata, message.metadata_props()))
    return false;
  OpsetImports imported;
  for (const onnx::OperatorSetIdProto& opset : message.opset_import())
    imported.try_emplace(opset.domain(), opset.version());
  if (imported != model.opsets ||
      model.functions.size() != static_cast<size_t>(message.functions_size()) ||
      message.graph().name() != model.graph().name())
    return false;
  for (size_t i = 0; i < model.functions.size(); ++i)
    if (model.functions[i]->source != &message.functions(static_cast<int>(i)))
      return false;
  for (const std::unique_ptr<Value>& input : model.graph().inputs())
    if (!input->source() || declaredType(*input->source()) != input->type())
      return false;
  return true;
}

llvm::Error ModelWriter::reserveBytes(uint64_t bytes) {
  constexpr auto limit = static_cast<uint64_t>(std::numeric_limits<int>::max());
  if (bytes > limit || copiedBytes > limit - bytes)
    return unsupported("the model does not fit in an ONNX file, which is limited to 2 GiB")
        .hint("keep the weights in external data files");
  copiedBytes += bytes;
  return llvm::Error::success();
}

llvm::Expected<const onnx::ModelProto*> ModelWriter::write() {
  std::unique_lock<std::mutex> lock;
  if (source)
    lock = std::unique_lock<std::mutex>(source->exportMutex);
  const onnx::ModelProto* original = source ? source->message : nullptr;
  auto& out = *google::protobuf::Arena::CreateMessage<onnx::ModelProto>(&arena);
  if (original) {
    copyShell(*source->message, &source->arena, out);
    shareAll(original->training_info(), *out.mutable_training_info());
  }
  if (!original || out.ir_version() != model.irVersion)
    out.set_ir_version(model.irVersion);
  if (out.producer_name() != model.producerName)
    out.set_producer_name(model.producerName);
  if (out.producer_version() != model.producerVersion)
    out.set_producer_version(model.producerVersion);
  if (out.domain() != model.domain)
    out.set_domain(model.domain);
  if (out.model_version() != model.modelVersion)
    out.set_model_version(model.modelVersion);
  if (out.doc_string() != model.docString)
    out.set_doc_string(model.docString);
  writeOpsets(model.opsets, original ? &original->opset_import() : nullptr,
              *out.mutable_opset_import());
  writeMetadata(writtenMetadata(model), original ? &original->metadata_props() : nullptr,
                *out.mutable_metadata_props());
  if (llvm::Error error = writeGraph(model.graph(), *out.mutable_graph()))
    return error;
  for (const std::unique_ptr<Function>& function : model.functions)
    if (llvm::Error error = writeFunction(*function, *out.mutable_functions()))
      return error;
  return &out;
}

void ModelWriter::writeOpsets(const OpsetImports& opsets,
                              const Repeated<onnx::OperatorSetIdProto>* original,
                              Repeated<onnx::OperatorSetIdProto>& out) {
  llvm::StringSet<> written;
  if (original)
    for (const onnx::OperatorSetIdProto& message : *original) {
      auto found = opsets.find(message.domain());
      if (found == opsets.end())
        continue;
      written.insert(message.domain());
      if (found->second == message.version()) {
        shareOne(message, out);
        continue;
      }
      onnx::OperatorSetIdProto& changed = *out.Add();
      changed.CopyFrom(message);
      changed.set_version(found->second);
    }
  for (const auto& opset : opsets)
    if (!written.count(opset.first)) {
      onnx::OperatorSetIdProto& added = *out.Add();
      added.set_domain(opset.first);
      added.set_version(opset.second);
    }
}

void ModelWriter::writeMetadata(const Metadata& metadata, const Entries* original, Entries& out) {
  // Entries of the source by key, in order.
  llvm::StringMap<llvm::SmallVector<const onnx::StringStringEntryProto*, 1>> unused;
  if (original)
    for (int i = original->size(); i-- > 0;)
      unused[original->Get(i).key()].push_back(&original->Get(i));
  for (const auto& entry : metadata) {
    const onnx::StringStringEntryProto* message = nullptr;
    auto found = unused.find(entry.first);
    if (found != unused.end() && !found->second.empty())
      message = found->second.pop_back_val();
    if (message && message->value() == entry.second) {
      shareOne(*message, out);
      continue;
    }
    onnx::StringStringEntryProto& changed = *out.Add();
    if (message)
      changed.CopyFrom(*message);
    else
      changed.set_key(entry.first);
    changed.set_value(entry.second);
  }
}

llvm::Error ModelWriter::writeFunction(const Function& function,
                                       Repeated<onnx::FunctionProto>& out) {
  const onnx::FunctionProto* original = function.source;
  onnx::FunctionProto& made = *out.Add();
  if (original) {
    copyShell(*original, sourceArena(), made);
    for (const onnx::ValueInfoProto& info : original->value_info())
      if (function.body.findValue(info.name()))
        shareOne(info, *made.mutable_value_info());
  }
  if (made.name() != function.name)
    made.set_name(function.name);
  if (made.domain() != function.domain)
    made.set_domain(function.domain);
  if (made.overload() != function.overload)
    made.set_overload(function.overload);
  if (made.doc_string() != function.docString)
    made.set_doc_string(function.docString);
  for (const std::unique_ptr<Value>& input : function.body.inputs())
    made.add_input(input->name().str());
  for (const Value* output : function.body.outputs())
    made.add_output(output->name().str());
  for (const std::string& attribute : function.attributes)
    made.add_attribute(attribute);
  for (const NamedAttribute& attribute : function.defaults)
    if (llvm::Error error = writeAttribute(attribute, *made.mutable_attribute_proto()))
      return error;
  writeOpsets(function.opsets, original ? &original->opset_import() : nullptr,
              *made.mutable_opset_import());
  if (!function.body.initializers().empty())
    return unsupported("function '{}' has initializers, which ONNX functions cannot have",
                       function.name)
        .hint("use Constant nodes");
  for (const Node& node : function.body.nodes())
    if (llvm::Error error = writeNode(node, *made.mutable_node()))
      return error;
  return llvm::Error::success();
}

llvm::Error ModelWriter::writeNode(const Node& node, Repeated<onnx::NodeProto>& out) {
  if (matchesSource(node) && !holdsMoved(node)) {
    shareOne(*node.source(), out);
    return llvm::Error::success();
  }
  onnx::NodeProto& made = *out.Add();
  writeNodeShell(node, sourceArena(), made);
  for (const NamedAttribute& attribute : node.attributes())
    if (llvm::Error error = writeAttribute(attribute, *made.mutable_attribute()))
      return withNode(std::move(error), node.name(), node.op().str());
  writeMetadata(node.metadata(), node.source() ? &node.source()->metadata_props() : nullptr,
                *made.mutable_metadata_props());
  return llvm::Error::success();
}

llvm::Error ModelWriter::writeAttribute(const NamedAttribute& attribute,
                                        Repeated<onnx::AttributeProto>& out) {
  const Attribute& value = attribute.value;
  const onnx::AttributeProto* original = value.source();
  const bool isMoved = original && mustMove(*original);
  if (original && value.graphs().empty() && original->name() == attribute.name && !isMoved) {
    shareOne(*original, out);
    return llvm::Error::success();
  }
  onnx::AttributeProto& made = *out.Add();
  if (original)
    copyShell(*original, sourceArena(), made);
  if (made.name() != attribute.name)
    made.set_name(attribute.name);
  if (original && value.graphs().empty() && !isMoved)
    return llvm::Error::success();
  if (isMoved) {
    made.clear_t();
    made.clear_tensors();
  }
  if (!original)
    made.set_type(static_cast<onnx::AttributeProto::AttributeType>(value.kind()));
  return writeAttributeValue(value, made);
}

llvm::Error ModelWriter::writeAttributeValue(const Attribute& value, onnx::AttributeProto& out) {
  if (value.isReference()) {
    out.set_ref_attr_name(value.referencedName().str());
    return llvm::Error::success();
  }
  switch (value.kind()) {
  case AttributeKind::Float:
    out.set_f(value.floatValue());
    break;
  case AttributeKind::Int:
    out.set_i(value.intValue());
    break;
  case AttributeKind::String:
    out.set_s(value.stringValue().str());
    break;
  case AttributeKind::Floats:
    out.mutable_floats()->Add(value.floats().begin(), value.floats().end());
    break;
  case AttributeKind::Ints:
    out.mutable_ints()->Add(value.ints().begin(), value.ints().end());
    break;
  case AttributeKind::Strings:
    for (const std::string& text : value.strings())
      out.add_strings(text);
    break;
  case AttributeKind::Tensor:
    return fillTensor(*value.tensorValue(), *out.mutable_t());
  case AttributeKind::Tensors:
    for (const TensorRef& tensor : value.tensors())
      if (llvm::Error error = fillTensor(*tensor, *out.add_tensors()))
        return error;
    break;
  case AttributeKind::Graph:
    return writeGraph(*value.graphs().front(), *out.mutable_g());
  case AttributeKind::Graphs:
    for (const std::unique_ptr<Graph>& graph : value.graphs())
      if (llvm::Error error = writeGraph(*graph, *out.add_graphs()))
        return error;
    break;
  default:
    return unsupported("an attribute of kind {} cannot be written",
                       attributeKindName(value.kind()));
  }
  return llvm::Error::success();
}

llvm::Error ModelWriter::fillTensor(const TensorData& tensor, onnx::TensorProto& out) {
  if (const onnx::TensorProto* message = messageOf(tensor)) {
    if (external.movesSource() && isExternal(*message))
      return moveTensor(tensor, *message, out);
    if (llvm::Error error = reserveBytes(message->ByteSizeLong()))
      return error;
    out.CopyFrom(*message);
    return llvm::Error::success();
  }
  llvm::Expected<std::optional<int64_t>> place = external.place(tensor);
  if (!place)
    return place.takeError();
  if (*place) {
    writeExternalTensor(tensor, external.fileName(), **place, out);
    return llvm::Error::success();
  }
  if (std::optional<int64_t> size = tensor.byteSize())
    if (llvm::Error error = reserveBytes(static_cast<uint64_t>(*size)))
      return error;
  return writeTensor(tensor, out);
}

llvm::Error ModelWriter::moveTensor(const TensorData& tensor, const onnx::TensorProto& message,
                                    onnx::TensorProto& out) {
  out.CopyFrom(message);
  switch (external.placement) {
  case ExternalPlacement::Keep:
    for (onnx::StringStringEntryProto& entry : *out.mutable_external_data())
      if (auto moved = external.movedLocations.find(entry.value());
          entry.key() == "location" && moved != external.movedLocations.end())
        entry.set_value(moved->second);
    return llvm::Error::success();
  case ExternalPlacement::Copy: {
    llvm::Expected<int64_t> offset = external.placeCopy(tensor);
    if (!offset)
      return offset.takeError();
    setExternalRange(external.fileName(), *offset, *tensor.byteSize(), out);
    return llvm::Error::success();
  }
  case ExternalPlacement::Inline:
    break;
  }
  out.clear_external_data();
  out.clear_data_location();
  llvm::Expected<std::span<const std::byte>> bytes = tensor.bytes();
  if (!bytes)
    return bytes.takeError();
  if (llvm::Error error = reserveBytes(bytes->size()))
    return error;
  out.set_raw_data(bytes->data(), bytes->size());
  return llvm::Error::success();
}

bool ModelWriter::mustMove(const onnx::AttributeProto& attribute) const {
  return external.movesSource() && holdsExternalTensor(attribute);
}

bool ModelWriter::holdsMoved(const Node& node) const {
  return external.movesSource() &&
         llvm::any_of(node.source()->attribute(), [](const onnx::AttributeProto& attribute) {
           return holdsExternalTensor(attribute);
         });
}

llvm::Error ModelWriter::writeTensorNamed(llvm::StringRef name, const TensorData& tensor,
                                          Repeated<onnx::TensorProto>& out) {
  const onnx::TensorProto* message = messageOf(tensor);
  const bool isInline = message && !isExternal(*message);
  const bool isMoved = message && !isInline && external.movesSource();
  const bool leavesFile = isInline && external.movesInline(tensor);
  if (message && message->name() == name && !isMoved && !leavesFile) {
    shareOne(*message, out);
    return llvm::Error::success();
  }
  onnx::TensorProto& made = *out.Add();
  if (leavesFile) {
    llvm::Expected<std::optional<int64_t>> place = external.place(tensor);
    if (!place)
      return place.takeError();
    writeExternalTensor(tensor, external.fileName(), place->value(), made);
    made.set_name(name.str());
    return llvm::Error::success();
  }
  llvm::Error error = fillTensor(tensor, made);
  made.set_name(name.str());
  return error;
}

// Declarations, initializers, nodes.

namespace {

/// Whether the value still has a type that the file declared. A file may declare a type more than
/// once and differently (for example, for an output that is a constant).
bool isTypedAsRead(const Value& value) {
  if (value.initializer() && !value.isGraphInput() && !value.producer())
    return messageOf(*value.initializer()) != nullptr;
  return value.source() && declaredType(*value.source()) == value.type();
}

} // namespace

llvm::Error ModelWriter::writeGraph(const Graph& graph, onnx::GraphProto& out) {
  const onnx::GraphProto* original = graph.source();
  if (original)
    copyShell(*original, sourceArena(), out);
  if (out.name() != graph.name())
    out.set_name(graph.name().str());
  writeInputs(graph, out);
  writeOutputs(graph, out);
  writeValueInfo(graph, out);
  if (llvm::Error error = writeInitializers(graph, out))
    return error;
  if (llvm::Error error = writeSparseInitializers(graph, out))
    return error;
  writeQuantization(graph, out);
  for (const Node& node : graph.nodes())
    if (llvm::Error error = writeNode(node, *out.mutable_node()))
      return error;
  return llvm::Error::success();
}

const llvm::StringSet<>& ModelWriter::declaredSymbols() {
  if (symbols)
    return *symbols;
  symbols.emplace();
  auto collect = [&](const Repeated<onnx::ValueInfoProto>& declarations) {
    for (const onnx::ValueInfoProto& declaration : declarations) {
      TensorType type = declaredType(declaration);
      if (type.hasRank())
        for (const Dim& dim : type.shape())
          for (const std::string& symbol : dim.symbols())
            symbols->insert(symbol);
    }
  };
  if (source) {
    collect(source->message->graph().input());
    collect(source->message->graph().output());
    collect(source->message->graph().value_info());
  }
  return *symbols;
}

bool ModelWriter::freesExtents() {
  if (!frees)
    frees = llvm::any_of(model.graph().inputs(), [](const std::unique_ptr<Value>& input) {
      if (!input->source())
        return false;
      const TensorType declared = declaredType(*input->source());
      const TensorType& type = input->type();
      if (!declared.hasRank() || !type.hasRank() || declared.rank() != type.rank())
        return false;
      return llvm::any_of(llvm::zip(declared.shape(), type.shape()), [](const auto& extents) {
        return std::get<0>(extents).value() && !std::get<1>(extents).value();
      });
    });
  return *frees;
}

bool ModelWriter::dimHolds(const Dim& declared, const Dim& current, Agreement agreement) {
  if (declared == current)
    return true;
  if (current.isUnknown())
    return !declared.value() || !freesExtents();
  if (agreement == Agreement::Equal)
    return false;
  if (declared.isUnknown())
    return true;
  if (declared.isKnownDifferent(current))
    return false;
  return !current.value() && llvm::all_of(current.symbols(), [&](const std::string& symbol) {
    return declaredSymbols().count(symbol) != 0;
  });
}

bool ModelWriter::declarationHolds(const onnx::ValueInfoProto& declaration, const TensorType& type,
                                   Agreement agreement) {
  if (declaresNonTensor(declaration))
    return type.elementType() == ElementType::Undefined && !type.hasRank();
  TensorType declared = declaredType(declaration);
  if (declared == type)
    return true;
  bool elementHolds =
      type.elementType() == ElementType::Undefined ||
      type.elementType() == declared.elementType() ||
      (agreement != Agreement::Equal && declared.elementType() == ElementType::Undefined);
  if (!elementHolds)
    return false;
  if (!type.hasRank())
    return !declared.hasRank() || llvm::all_of(declared.shape(), [&](const Dim& extent) {
      return dimHolds(extent, Dim::unknown(), agreement);
    });
  if (!declared.hasRank())
    return agreement != Agreement::Equal;
  if (declared.rank() != type.rank())
    return false;
  for (unsigned axis = 0; axis < type.rank(); ++axis)
    if (!dimHolds(declared.shape()[axis], type.shape()[axis], agreement))
      return false;
  return true;
}

void ModelWriter::writeDeclaration(const Value& value, const onnx::ValueInfoProto* original,
                                   Agreement agreement, Repeated<onnx::ValueInfoProto>& out) {
  if (original && original->name() == value.name() &&
      (isTypedAsRead(value) || declarationHolds(*original, value.type(), agreement))) {
    shareOne(*original, out);
    return;
  }
  onnx::ValueInfoProto& made = *out.Add();
  if (original)
    made.CopyFrom(*original);
  if (made.name() != value.name())
    made.set_name(value.name().str());
  declareType(made, value.type());
}

void ModelWriter::writeInputs(const Graph& graph, onnx::GraphProto& out) {
  for (const std::unique_ptr<Value>& input : graph.inputs())
    writeDeclaration(*input, input->source(), Agreement::Equal, *out.mutable_input());
}

void ModelWriter::writeOutputs(const Graph& graph, onnx::GraphProto& out) {
  const onnx::GraphProto* original = graph.source();
  llvm::StringMap<const onnx::ValueInfoProto*> declared;
  if (original)
    for (const onnx::ValueInfoProto& output : original->output())
      declared.try_emplace(output.name(), &output);
  for (size_t slot = 0; slot < graph.outputs().size(); ++slot) {
    const Value& value = *graph.outputs()[slot];
    const onnx::ValueInfoProto* declaration = declared.lookup(value.name());
    // A value may be several outputs, each with its own declaration.
    if (original && slot < static_cast<size_t>(original->output_size()) &&
        original->output(static_cast<int>(slot)).name() == value.name())
      declaration = &original->output(static_cast<int>(slot));
    bool isNew = value.producer() && !value.producer()->source();
    Agreement agreement = isNew ? Agreement::Equal : Agreement::NoNews;
    writeDeclaration(value, declaration, agreement, *out.mutable_output());
  }
}

void ModelWriter::writeValueInfo(const Graph& graph, onnx::GraphProto& out) {
  const onnx::GraphProto* original = graph.source();
  if (!original) {
    for (const Node& node : graph.nodes())
      for (const Value& result : node.results())
        if (!result.isAbsent() && !result.isGraphOutput() && result.type().hasRank() &&
            result.type().elementType() != ElementType::Undefined)
          writeDeclaration(result, nullptr, Agreement::NoNews, *out.mutable_value_info());
    return;
  }
  for (const onnx::ValueInfoProto& declaration : original->value_info()) {
    const Value* value = graph.findValue(declaration.name());
    bool keep = value ? isTypedAsRead(*value) ||
                            declarationHolds(declaration, value->type(), Agreement::NoNews)
                      : source && source->danglingDeclarations.count(&declaration) != 0;
    if (keep)
      shareOne(declaration, *out.mutable_value_info());
  }
}

llvm::Error ModelWriter::writeInitializers(const Graph& graph, onnx::GraphProto& out) {
  llvm::DenseMap<const onnx::TensorProto*, int> positions;
  if (graph.source())
    for (const onnx::TensorProto& message : graph.source()->initializer())
      positions.try_emplace(&message, static_cast<int>(positions.size()));
  struct Entry {
    int position;
    const Value* value;
  };
  std::vector<Entry> entries;
  auto add = [&](const std::unique_ptr<Value>& value) {
    if (!value->initializer())
      return;
    auto found = positions.find(messageOf(*value->initializer()));
    entries.push_back({found == positions.end() ? INT_MAX : found->second, value.get()});
  };
  llvm::for_each(graph.inputs(), add);
  llvm::for_each(graph.initializers(), add);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.position < b.position; });
  for (const Entry& entry : entries)
    if (llvm::Error error = writeTensorNamed(entry.value->name(), *entry.value->initializer(),
                                             *out.mutable_initializer())) {
      Diagnostic diagnostic = takeDiagnostic(std::move(error));
      diagnostic.value = entry.value->name().str();
      return makeError(std::move(diagnostic));
    }
  return llvm::Error::success();
}

llvm::Error ModelWriter::writeSparseInitializers(const Graph& graph, onnx::GraphProto& out) {
  llvm::StringSet<> written;
  if (graph.source())
    for (const onnx::SparseTensorProto& message : graph.source()->sparse_initializer()) {
      const Value* value = graph.findValue(message.values().name());
      if (!value || !value->isInitializer() || value->initializer())
        continue;
      written.insert(value->name());
      shareOne(message, *out.mutable_sparse_initializer());
    }
  for (const std::unique_ptr<Value>& value : graph.initializers())
    if (!value->initializer() && !written.count(value->name()))
      return unsupported("a sparse initializer that was renamed or made anew cannot be written")
          .value(value->name());
  return llvm::Error::success();
}

void ModelWriter::writeQuantization(const Graph& graph, onnx::GraphProto& out) {
  if (!graph.source())
    return;
  for (const onnx::TensorAnnotation& annotation : graph.source()->quantization_annotation())
    shareOne(annotation, *out.mutable_quantization_annotation());
}

} // namespace kvopt::ir
