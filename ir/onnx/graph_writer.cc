// Messages of graphs: declarations, initializers, nodes.
#include "ir/onnx/sharing.h"
#include "ir/onnx/types.h"
#include "ir/onnx/writer.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <climits>

namespace kvopt::ir {
namespace {

/// Whether the type is still the one that the file gave the value, which may have declared it more
/// than once and differently (an output that is a constant, say).
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

bool ModelWriter::dimHolds(const Dim& declared, const Dim& current, Agreement agreement) {
  if (current.isUnknown() || declared == current)
    return true;
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
    return true;
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
    // One value may fill several slots, each with its declaration.
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
