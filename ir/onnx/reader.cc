// Reading of graphs, nodes, attributes and functions from messages.
#include "ir/onnx/reader.h"

#include "ir/onnx/types.h"
#include "support/diagnostic.h"

namespace kvopt::ir {
namespace {

/// Maximum nesting of graphs.
constexpr unsigned maxDepth = 64;
/// Lookup of attributes is linear in their number.
constexpr int maxAttributes = 4096;

AttributeKind kindOf(const onnx::AttributeProto& message) {
  if (message.has_type())
    return static_cast<AttributeKind>(message.type());
  // Files of the first ONNX version do not store the kind.
  if (message.has_f())
    return AttributeKind::Float;
  if (message.has_i())
    return AttributeKind::Int;
  if (message.has_s())
    return AttributeKind::String;
  if (message.has_t())
    return AttributeKind::Tensor;
  if (message.has_g())
    return AttributeKind::Graph;
  if (message.floats_size())
    return AttributeKind::Floats;
  if (message.ints_size())
    return AttributeKind::Ints;
  if (message.strings_size())
    return AttributeKind::Strings;
  if (message.tensors_size())
    return AttributeKind::Tensors;
  if (message.graphs_size())
    return AttributeKind::Graphs;
  return AttributeKind::Undefined;
}

std::string operatorOf(const onnx::NodeProto& message) {
  return OpName(message.domain(), message.op_type()).str();
}

bool holdsGraph(const Node& node, const Graph& graph) {
  for (const Graph* inner = &graph; inner->parentNode(); inner = &inner->parentNode()->graph())
    if (inner->parentNode() == &node)
      return true;
  return false;
}

} // namespace

Value* visibleValue(const Graph& graph, llvm::StringRef name) {
  if (name.empty())
    return nullptr;
  for (const Graph* scope = &graph;;) {
    Value* value = scope->findValue(name);
    if (value && !(value->producer() && holdsGraph(*value->producer(), graph)))
      return value;
    if (!scope->parentNode())
      return nullptr;
    scope = &scope->parentNode()->graph();
  }
}

llvm::Error GraphReader::checkNewName(llvm::StringRef name, const Graph& graph,
                                      llvm::StringRef what) {
  if (name.empty())
    return invalid("{} without a name", what);
  if (graph.findValue(name))
    return invalid("{} of a name that is already taken", what).value(name);
  if (visibleValue(graph, name))
    return invalid("{} hides a value of an enclosing graph", what).value(name);
  return llvm::Error::success();
}

llvm::Expected<TensorRef> GraphReader::readTensor(const onnx::TensorProto& message) {
  auto tensor = tensorOf(message, source, source->externalFiles);
  if (tensor)
    return tensor;
  Diagnostic diagnostic = takeDiagnostic(tensor.takeError());
  diagnostic.value = message.name();
  return makeError(std::move(diagnostic));
}

llvm::Error GraphReader::readInputs(const onnx::GraphProto& message, Graph& graph) {
  for (const onnx::ValueInfoProto& input : message.input()) {
    if (llvm::Error error = checkNewName(input.name(), graph, "a graph input"))
      return error;
    graph.addInput(input.name(), declaredType(input)).setSource(&input);
  }
  return llvm::Error::success();
}

llvm::Error GraphReader::readInitializer(const onnx::TensorProto& message, Graph& graph) {
  llvm::Expected<TensorRef> tensor = readTensor(message);
  if (!tensor)
    return tensor.takeError();
  Value* input = graph.findValue(message.name());
  if (input && input->isGraphInput() && !input->isInitializer()) {
    graph.setInputDefault(*input, std::move(*tensor));
    return llvm::Error::success();
  }
  if (llvm::Error error = checkNewName(message.name(), graph, "an initializer"))
    return error;
  graph.addInitializer(message.name(), std::move(*tensor));
  return llvm::Error::success();
}

llvm::Error GraphReader::readSparseInitializer(const onnx::SparseTensorProto& message,
                                               Graph& graph) {
  llvm::SmallVector<int64_t, 4> extents(message.dims().begin(), message.dims().end());
  const std::string& name = message.values().name();
  if (llvm::Expected<int64_t> count = checkedElementCount(extents); !count) {
    Diagnostic diagnostic = takeDiagnostic(count.takeError());
    diagnostic.value = name;
    return makeError(std::move(diagnostic));
  }
  if (llvm::Error error = checkNewName(name, graph, "a sparse initializer"))
    return error;
  auto element = static_cast<ElementType>(message.values().data_type());
  graph.addOpaqueInitializer(name, TensorType::fixed(element, extents));
  return llvm::Error::success();
}

llvm::Error GraphReader::readInitializers(const onnx::GraphProto& message, Graph& graph) {
  for (const onnx::TensorProto& initializer : message.initializer())
    if (llvm::Error error = readInitializer(initializer, graph))
      return error;
  for (const onnx::SparseTensorProto& initializer : message.sparse_initializer())
    if (llvm::Error error = readSparseInitializer(initializer, graph))
      return error;
  return llvm::Error::success();
}

llvm::Error GraphReader::readOutputs(const onnx::GraphProto& message, Graph& graph) {
  for (const onnx::ValueInfoProto& output : message.output()) {
    Value* value = visibleValue(graph, output.name());
    if (!value)
      return invalid("a graph output that nothing defines").value(output.name());
    graph.addOutput(*value);
  }
  return llvm::Error::success();
}

namespace {

/// Whether the node reads a result of a node from `first` on, including its own results.
bool readsLaterResult(const NodeMessages& messages, int first, const onnx::NodeProto& reader,
                      const Graph& graph) {
  llvm::StringSet<> missing;
  forEachOuterName(reader, [&](llvm::StringRef name) {
    if (!visibleValue(graph, name))
      missing.insert(name);
  });
  for (int i = first; i < messages.size() && !missing.empty(); ++i)
    for (const std::string& result : messages.Get(i).output())
      if (missing.contains(result))
        return true;
  return false;
}

} // namespace

/// Reads nodes in execution order. Files may list nodes in any order: nodes that are in order are
/// read directly, and the rest is sorted from the first node that comes too early.
llvm::Error GraphReader::readNodes(const NodeMessages& messages, Graph& graph,
                                   const Declarations& declared) {
  std::vector<int> sorted;
  int firstSorted = messages.size();
  for (int i = 0; i < messages.size(); ++i) {
    if (sorted.empty() && readsLaterResult(messages, i, messages.Get(i), graph)) {
      auto order = executionOrder(messages, i);
      if (!order)
        return order.takeError();
      sorted = std::move(*order);
      firstSorted = i;
    }
    const onnx::NodeProto& message =
        messages.Get(i < firstSorted ? i : sorted[static_cast<size_t>(i - firstSorted)]);
    for (const std::string& operand : message.input())
      if (!operand.empty() && !visibleValue(graph, operand))
        return invalid("reads a value that nothing defines")
            .node(message.name(), operatorOf(message))
            .value(operand);
    if (llvm::Error error = readNode(message, graph, declared))
      return withNode(std::move(error), message.name(), operatorOf(message));
  }
  return llvm::Error::success();
}

llvm::Error GraphReader::readNode(const onnx::NodeProto& message, Graph& graph,
                                  const Declarations& declared) {
  if (message.op_type().empty())
    return invalid("a node without an operator");
  llvm::SmallVector<Value*, 8> operands;
  for (const std::string& operand : message.input())
    operands.push_back(visibleValue(graph, operand));
  llvm::SmallVector<llvm::StringRef, 4> results;
  llvm::StringSet<> ownNames;
  for (const std::string& result : message.output()) {
    results.push_back(result);
    if (result.empty())
      continue;
    if (llvm::Error error = checkNewName(result, graph, "a result"))
      return error;
    if (message.output_size() > 1 && !ownNames.insert(result).second)
      return invalid("two results of one name").value(result);
  }

  Node& node = graph.create(OpName(message.domain(), message.op_type()), operands, results);
  for (Value& result : node.results())
    if (const onnx::ValueInfoProto* declaration = declared.lookup(result.name())) {
      result.setType(declaredType(*declaration));
      result.setSource(declaration);
    }
  if (!message.name().empty())
    node.setName(message.name());
  if (!message.overload().empty())
    node.setOverload(message.overload());
  if (message.metadata_props_size()) {
    Metadata metadata;
    for (const onnx::StringStringEntryProto& entry : message.metadata_props())
      metadata.emplace_back(entry.key(), entry.value());
    node.setMetadata(std::move(metadata));
  }
  if (llvm::Error error = readAttributes(message, node))
    return error;
  node.setSource(&message);
  return llvm::Error::success();
}

llvm::Error GraphReader::readAttributes(const onnx::NodeProto& message, Node& node) {
  if (message.attribute_size() > maxAttributes)
    return unsupported("{} attributes on one node", message.attribute_size());
  llvm::StringSet<> names;
  for (const onnx::AttributeProto& attribute : message.attribute()) {
    if (attribute.name().empty())
      return invalid("an attribute without a name");
    if (!names.insert(attribute.name()).second)
      return invalid("attribute '{}' is given twice", attribute.name());
    llvm::Expected<Attribute> value = readAttribute(attribute, node.graph(), &node);
    if (!value)
      return value.takeError();
    node.setAttribute(attribute.name(), std::move(*value));
  }
  return llvm::Error::success();
}

llvm::Expected<Attribute> GraphReader::readAttribute(const onnx::AttributeProto& message,
                                                     Graph& scope, Node* holder) {
  AttributeKind kind = kindOf(message);
  if (!message.ref_attr_name().empty()) {
    Attribute reference = Attribute::reference(message.ref_attr_name(), kind);
    reference.setSource(&message);
    return reference;
  }
  llvm::Expected<Attribute> value = readAttributeValue(message, kind, scope, holder);
  if (value)
    value->setSource(&message);
  return value;
}

llvm::Expected<Attribute> GraphReader::readAttributeValue(const onnx::AttributeProto& message,
                                                          AttributeKind kind, Graph& scope,
                                                          Node* holder) {
  switch (kind) {
  case AttributeKind::Float:
    return Attribute::ofFloat(message.f());
  case AttributeKind::Int:
    return Attribute::ofInt(message.i());
  case AttributeKind::String:
    return Attribute::ofString(message.s());
  case AttributeKind::Floats:
    return Attribute::ofFloats({message.floats().begin(), message.floats().end()});
  case AttributeKind::Ints:
    return Attribute::ofInts({message.ints().begin(), message.ints().end()});
  case AttributeKind::Strings:
    return Attribute::ofStrings({message.strings().begin(), message.strings().end()});
  case AttributeKind::Tensor: {
    llvm::Expected<TensorRef> tensor = readTensor(message.t());
    if (!tensor)
      return tensor.takeError();
    return Attribute::ofTensor(std::move(*tensor));
  }
  case AttributeKind::Tensors: {
    std::vector<TensorRef> tensors;
    for (const onnx::TensorProto& one : message.tensors()) {
      llvm::Expected<TensorRef> tensor = readTensor(one);
      if (!tensor)
        return tensor.takeError();
      tensors.push_back(std::move(*tensor));
    }
    return Attribute::ofTensors(std::move(tensors));
  }
  case AttributeKind::Graph:
  case AttributeKind::Graphs: {
    if (!holder)
      return unsupported("the default of a function's attribute is a graph");
    bool list = kind == AttributeKind::Graphs;
    std::vector<std::unique_ptr<Graph>> graphs;
    for (int i = 0; i < (list ? message.graphs_size() : 1); ++i) {
      auto graph = readSubgraph(list ? message.graphs(i) : message.g(), scope, *holder);
      if (!graph)
        return graph.takeError();
      graphs.push_back(std::move(*graph));
    }
    return Attribute::ofGraphs(std::move(graphs), list);
  }
  default:
    return Attribute::opaque(kind, &message);
  }
}

llvm::Expected<std::unique_ptr<Graph>> GraphReader::readSubgraph(const onnx::GraphProto& message,
                                                                 Graph& scope, Node& holder) {
  if (depth >= maxDepth)
    return unsupported("graphs are nested more than {} deep", maxDepth);
  auto graph = std::make_unique<Graph>(scope.context(), scope.opsets(), &holder);
  ++depth;
  llvm::Error error = read(message, *graph);
  --depth;
  if (error)
    return error;
  return graph;
}

llvm::Error GraphReader::read(const onnx::GraphProto& message, Graph& graph) {
  graph.setName(message.name());
  graph.setSource(&message);
  Declarations declared;
  for (const onnx::ValueInfoProto& output : message.output())
    declared.try_emplace(output.name(), &output);
  for (const onnx::ValueInfoProto& info : message.value_info())
    declared.try_emplace(info.name(), &info);

  if (llvm::Error error = readInputs(message, graph))
    return error;
  if (llvm::Error error = readInitializers(message, graph))
    return error;
  if (llvm::Error error = readNodes(message.node(), graph, declared))
    return error;
  if (llvm::Error error = readOutputs(message, graph))
    return error;
  for (const onnx::ValueInfoProto& info : message.value_info())
    if (!graph.findValue(info.name()))
      source->danglingDeclarations.insert(&info);
  return llvm::Error::success();
}

llvm::Error GraphReader::read(const onnx::FunctionProto& message, Function& function) {
  function.source = &message;
  function.docString = message.doc_string();
  function.attributes.assign(message.attribute().begin(), message.attribute().end());
  Graph& body = function.body;
  for (const onnx::AttributeProto& attribute : message.attribute_proto()) {
    llvm::Expected<Attribute> value = readAttribute(attribute, body, nullptr);
    if (!value)
      return value.takeError();
    function.defaults.push_back({attribute.name(), std::move(*value)});
  }

  body.setName(message.name());
  Declarations declared;
  for (const onnx::ValueInfoProto& info : message.value_info())
    declared.try_emplace(info.name(), &info);
  for (const std::string& input : message.input()) {
    if (llvm::Error error = checkNewName(input, body, "a function input"))
      return error;
    body.addInput(input, TensorType());
  }
  if (llvm::Error error = readNodes(message.node(), body, declared))
    return error;
  for (const std::string& output : message.output()) {
    Value* value = body.findValue(output);
    if (!value)
      return invalid("a function output that nothing defines").value(output);
    body.addOutput(*value);
  }
  return llvm::Error::success();
}

} // namespace kvopt::ir
