// Reader of ONNX's textual syntax: graphs and nodes.
#include "ir/text/parser.h"
#include "ir/text/types.h"
#include "ir/text/values.h"
#include "support/format.h"

namespace kvopt::ir {
namespace {

/// Graphs within graphs.
constexpr unsigned maxDepth = 64;

} // namespace

bool TextParser::checkNewName(const Graph& graph, const Name& name) {
  if (name.text.empty())
    return cursor.fail(name.offset, "a value without a name");
  if (graph.findValue(name.text))
    return cursor.fail(name.offset, fmt::format("'{}' is defined twice", name.text));
  if (graph.findValue(name.text, /*enclosing=*/true))
    return cursor.fail(name.offset,
                       fmt::format("'{}' hides a value of an enclosing graph", name.text));
  return true;
}

Value* TextParser::findDefined(const Graph& graph, const Name& name) {
  Value* value = graph.findValue(name.text, /*enclosing=*/true);
  if (!value)
    cursor.fail(name.offset, fmt::format("nothing above defines '{}'", name.text),
                "nodes stand in the order of their execution");
  return value;
}

bool TextParser::readGraph(Graph& graph) {
  if (depth == maxDepth)
    return cursor.fail(cursor.offset(),
                       fmt::format("graphs are nested more than {} deep", maxDepth));
  ++depth;
  std::string name;
  std::vector<TypedName> outputs, types;
  if (!cursor.name(name, "a graph's name"))
    return false;
  graph.setName(std::move(name));
  if (!readInputs(graph) || !cursor.expectArrow() || !readTypedNames(outputs) ||
      !readDeclarations(graph, types, /*initializers=*/true) || !readNodes(graph) ||
      !setTypes(graph, types) || !addOutputs(graph, outputs))
    return false;
  --depth;
  return true;
}

bool TextParser::readInputs(Graph& graph) {
  if (!cursor.expect('(', "before inputs"))
    return false;
  if (cursor.accept(')'))
    return true;
  do
    if (!readInput(graph))
      return false;
  while (cursor.accept(','));
  return cursor.expect(')', "after inputs");
}

bool TextParser::readInput(Graph& graph) {
  size_t place = cursor.offset();
  TypedName name;
  if (!readTypedName(name) || !checkNewName(graph, name))
    return false;
  Value& input = graph.addInput(name.text, name.type);
  if (!cursor.accept('='))
    return !cursor.failed();
  TensorRef data;
  if (!readTensorLiteral(cursor, name.type, place, data))
    return false;
  graph.setInputDefault(input, std::move(data));
  return true;
}

bool TextParser::readTypedName(TypedName& name) {
  if (atType(cursor) && !readType(cursor, name.type))
    return false;
  name.offset = cursor.offset();
  return cursor.name(name.text, "a value's name");
}

bool TextParser::readTypedNames(std::vector<TypedName>& names) {
  if (!cursor.expect('(', "before outputs"))
    return false;
  if (cursor.accept(')'))
    return true;
  do
    if (!readTypedName(names.emplace_back()))
      return false;
  while (cursor.accept(','));
  return cursor.expect(')', "after outputs");
}

bool TextParser::readDeclarations(Graph& graph, std::vector<TypedName>& types, bool initializers) {
  if (!cursor.accept('<'))
    return !cursor.failed();
  if (cursor.accept('>'))
    return true;
  do {
    size_t place = cursor.offset();
    TypedName name;
    if (!readTypedName(name))
      return false;
    if (!cursor.peek().is('=')) {
      types.push_back(std::move(name));
      continue;
    }
    if (!initializers)
      return cursor.fail(cursor.offset(), "a function has no initializers",
                         "write a Constant node");
    cursor.take();
    TensorRef data;
    if (!readTensorLiteral(cursor, name.type, place, data) ||
        !addInitializer(graph, name, std::move(data)))
      return false;
  } while (cursor.accept(','));
  return cursor.expect('>', "after initializers");
}

bool TextParser::addInitializer(Graph& graph, const TypedName& name, TensorRef data) {
  Value* input = graph.findValue(name.text);
  if (!input || !input->isGraphInput() || input->isInitializer()) {
    if (!checkNewName(graph, name))
      return false;
    graph.addInitializer(name.text, std::move(data));
    return true;
  }
  ElementType declared = input->type().elementType();
  if (declared != ElementType::Undefined && declared != data->elementType())
    return cursor.fail(name.offset,
                       fmt::format("input '{}' is of type {}, its default of {}", name.text,
                                   onnxName(declared), onnxName(data->elementType())));
  graph.setInputDefault(*input, std::move(data));
  return true;
}

bool TextParser::setTypes(Graph& graph, const std::vector<TypedName>& types) {
  for (const TypedName& name : types) {
    Value* value = graph.findValue(name.text);
    if (!value)
      return cursor.fail(name.offset,
                         fmt::format("'{}' has a type and nothing defines it", name.text));
    if (!value->producer())
      return cursor.fail(name.offset, fmt::format("the type of '{}' stands twice", name.text));
    value->setType(name.type);
  }
  return true;
}

bool TextParser::addOutputs(Graph& graph, const std::vector<TypedName>& outputs) {
  for (const TypedName& name : outputs) {
    Value* value = findDefined(graph, name);
    if (!value)
      return false;
    bool typed = name.type.hasRank() || name.type.elementType() != ElementType::Undefined;
    if (typed && value->producer() && &value->graph() == &graph)
      value->setType(name.type);
    ElementType known = value->type().elementType();
    if (typed && known != ElementType::Undefined && known != name.type.elementType())
      return cursor.fail(name.offset,
                         fmt::format("output '{}' is declared {} and is {}", name.text,
                                     onnxName(name.type.elementType()), onnxName(known)));
    graph.addOutput(*value);
  }
  return true;
}

bool TextParser::readNodes(Graph& graph) {
  if (!cursor.expect('{', "before nodes"))
    return false;
  while (!cursor.accept('}'))
    if (!readNode(graph))
      return false;
  return true;
}

bool TextParser::readNode(Graph& graph) {
  std::string label, overload, opStorage;
  if (cursor.accept('[') &&
      (!cursor.name(label, "a node's label") || !cursor.expect(']', "after a node's label")))
    return false;
  std::vector<Name> results;
  OpName op;
  if (!readNames(results, '=') || !readOperator(op, opStorage))
    return false;
  if (cursor.accept(':') && !cursor.name(overload, "an overload"))
    return false;
  // Results get their names last: neither operands nor subgraphs may read them.
  Node& node = graph.create(op, {}, std::vector<llvm::StringRef>(results.size()));
  if (!label.empty())
    node.setName(std::move(label));
  if (!overload.empty())
    node.setOverload(std::move(overload));
  bool attributesFirst = cursor.peek().is('<');
  if (attributesFirst && !readAttributes(node))
    return false;
  if (!readOperands(node))
    return false;
  if (cursor.peek().is('<')) {
    if (attributesFirst)
      return cursor.fail(cursor.offset(), "attributes stand before and after the operands");
    if (!readAttributes(node))
      return false;
  }
  return !cursor.failed() && nameResults(node, results);
}

/// `com.microsoft.Gelu`: the last dot separates the operator from its domain. `storage` keeps the
/// text of `op`.
bool TextParser::readOperator(OpName& op, std::string& storage) {
  size_t lastPart = 0;
  std::string part;
  do {
    if (!cursor.name(part, "an operator"))
      return false;
    if (!storage.empty())
      storage += '.';
    lastPart = storage.size();
    storage += part;
  } while (cursor.accept('.'));
  llvm::StringRef whole = storage;
  llvm::StringRef domain = whole.take_front(lastPart == 0 ? 0 : lastPart - 1);
  op = OpName(domain, whole.drop_front(lastPart));
  return true;
}

/// A comma-separated list of names up to `end`, which is consumed. A place may be empty or "" for
/// an absent operand or result; an empty place after the last comma does not count.
bool TextParser::readNames(std::vector<Name>& names, char end) {
  while (!cursor.accept(end)) {
    Name& name = names.emplace_back();
    name.offset = cursor.offset();
    if (!cursor.peek().is(',') && !cursor.name(name.text, "a value's name"))
      return false;
    if (!cursor.accept(',') && !cursor.peek().is(end))
      return cursor.unexpected(fmt::format("`,` or `{}`", end));
  }
  return true;
}

bool TextParser::readOperands(Node& node) {
  std::vector<Name> names;
  if (!cursor.expect('(', "before operands") || !readNames(names, ')'))
    return false;
  std::vector<Value*> operands;
  for (const Name& name : names) {
    operands.push_back(name.text.empty() ? nullptr : findDefined(node.graph(), name));
    if (cursor.failed())
      return false;
  }
  node.setOperands(operands);
  return true;
}

bool TextParser::nameResults(Node& node, const std::vector<Name>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].text.empty())
      continue;
    if (!checkNewName(node.graph(), results[i]))
      return false;
    node.graph().rename(node.result(static_cast<unsigned>(i)), results[i].text);
  }
  return true;
}

} // namespace kvopt::ir
