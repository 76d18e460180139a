// Reader of ONNX's textual syntax: models, graphs, nodes and attributes.
#include "ir/text/reader.h"

#include "ir/op.h"
#include "ir/text/parser.h"
#include "ir/text/types.h"
#include "ir/text/values.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::ir {

llvm::Error TextParser::readModel() {
  bool read = readModelHeader() && readGraph(model.graph());
  while (read && !cursor.atEnd())
    read = readFunction();
  return read ? llvm::Error::success() : cursor.takeError();
}

llvm::Expected<Function*> TextParser::readOnlyFunction() {
  size_t known = model.functions.size();
  bool read = readFunction() && (cursor.atEnd() || cursor.unexpected("the end of the function"));
  if (read)
    return model.functions.back().get();
  model.functions.resize(known);
  return cursor.takeError();
}

bool TextParser::readModelHeader() {
  Header header{model.opsets,
                {{"producer_name", &model.producerName},
                 {"producer_version", &model.producerVersion},
                 {"domain", &model.domain},
                 {"doc_string", &model.docString}},
                {{"ir_version", &model.irVersion}, {"model_version", &model.modelVersion}},
                &model.metadata};
  return readHeader(std::move(header));
}

bool TextParser::readHeader(Header header) {
  if (!cursor.accept('<'))
    return !cursor.failed();
  llvm::StringSet<> seen;
  do {
    std::string key;
    size_t place = cursor.offset();
    if (!cursor.identifier(key, "a key of the header"))
      return false;
    if (!seen.insert(key).second)
      return cursor.fail(place, formatted("`{}` is given twice", key));
    if (!cursor.expect(':', "after a header's key") || !readHeaderEntry(key, place, header))
      return false;
  } while (cursor.accept(','));
  return cursor.expect('>', "after the header");
}

bool TextParser::readHeaderEntry(llvm::StringRef key, size_t place, Header& header) {
  if (key == "opset_import")
    return readOpsets(header.opsets);
  if (key == "metadata_props" && header.metadata)
    return readPairs(*header.metadata);
  std::string known = "opset_import";
  for (auto& [name, text] : header.texts) {
    if (key == name)
      return cursor.string(*text, "a quoted string");
    known += ", " + name.str();
  }
  for (auto& [name, number] : header.numbers) {
    if (key == name)
      return cursor.integer(*number, "a number");
    known += ", " + name.str();
  }
  return cursor.fail(place, formatted("this header has no key `{}`", key), "known: " + known);
}

bool TextParser::readOpsets(OpsetImports& opsets) {
  if (!cursor.expect('[', "before operator sets"))
    return false;
  while (!cursor.peek().is(']')) {
    std::string domain;
    int64_t version = 0;
    size_t place = cursor.offset();
    if (!cursor.string(domain, "a quoted domain") || !cursor.expect(':', "after a domain") ||
        !cursor.integer(version, "a version"))
      return false;
    if (!opsets.try_emplace(domain, version).second)
      return cursor.fail(place, formatted("domain '{}' is imported twice", domain));
    if (!cursor.accept(','))
      break;
  }
  return cursor.expect(']', "after operator sets");
}

bool TextParser::readPairs(Metadata& metadata) {
  if (!cursor.expect('[', "before metadata"))
    return false;
  while (!cursor.peek().is(']')) {
    auto& [key, value] = metadata.emplace_back();
    if (!cursor.string(key, "a quoted key") || !cursor.expect(':', "after a metadata key") ||
        !cursor.string(value, "a quoted value"))
      return false;
    if (!cursor.accept(','))
      break;
  }
  return cursor.expect(']', "after metadata");
}

bool TextParser::readFunction() {
  auto made = std::make_unique<Function>(model.context(), "", "");
  if (!readHeader({made->opsets,
                   {{"domain", &made->domain},
                    {"overload", &made->overload},
                    {"doc_string", &made->docString}},
                   {},
                   nullptr}))
    return false;
  size_t place = cursor.offset();
  if (!cursor.name(made->name, "a function's name"))
    return false;
  for (const std::unique_ptr<Function>& other : model.functions)
    if (other->name == made->name && other->domain == made->domain &&
        other->overload == made->overload)
      return cursor.fail(place, formatted("function '{}' is defined twice", made->name));
  function = made.get();
  model.functions.push_back(std::move(made));
  Graph& body = function->body;
  std::vector<TypedName> outputs, types;
  if (!readFunctionAttributes(*function) || !readInputs(body) || !cursor.expectArrow() ||
      !readTypedNames(outputs) || !readDeclarations(body, types, /*initializers=*/false) ||
      !readNodes(body) || !setTypes(body, types) || !addOutputs(body, outputs))
    return false;
  function = nullptr;
  model.markEdited();
  return true;
}

bool TextParser::readFunctionAttributes(Function& target) {
  if (!cursor.accept('<'))
    return !cursor.failed();
  llvm::StringSet<> seen;
  while (!cursor.peek().is('>')) {
    std::string name;
    size_t place = cursor.offset();
    if (!cursor.name(name, "an attribute's name"))
      return false;
    if (!seen.insert(name).second)
      return cursor.fail(place, formatted("attribute '{}' is given twice", name));
    if (cursor.peek().is(':') || cursor.peek().is('=')) {
      Attribute value;
      if (!readAttribute(name, nullptr, value))
        return false;
      target.defaults.push_back({name, std::move(value)});
    } else {
      target.attributes.push_back(name);
    }
    if (!cursor.accept(','))
      break;
  }
  return cursor.expect('>', "after a function's attributes");
}

llvm::Expected<std::unique_ptr<Model>> readText(llvm::StringRef text, const OpRegistry& registry,
                                                llvm::StringRef fileName) {
  auto model = std::make_unique<Model>(registry);
  TextParser parser(*model, text, fileName);
  if (llvm::Error error = parser.readModel())
    return error;
  model->resetEdited();
  return model;
}

llvm::Expected<Function*> readFunctionText(llvm::StringRef text, Model& model) {
  return TextParser(model, text, "<function>").readOnlyFunction();
}

// Graphs and nodes.

namespace {

/// Maximum nesting of graphs.
constexpr unsigned maxDepth = 64;

} // namespace

bool TextParser::checkNewName(const Graph& graph, const Name& name) {
  if (name.text.empty())
    return cursor.fail(name.offset, "a value without a name");
  if (graph.findValue(name.text))
    return cursor.fail(name.offset, formatted("'{}' is defined twice", name.text));
  if (graph.findValue(name.text, /*enclosing=*/true))
    return cursor.fail(name.offset,
                       formatted("'{}' hides a value of an enclosing graph", name.text));
  return true;
}

Value* TextParser::findDefined(const Graph& graph, const Name& name) {
  Value* value = graph.findValue(name.text, /*enclosing=*/true);
  if (!value)
    cursor.fail(name.offset, formatted("nothing above defines '{}'", name.text),
                "nodes must be in execution order");
  return value;
}

bool TextParser::readGraph(Graph& graph) {
  if (depth == maxDepth)
    return cursor.fail(cursor.offset(), formatted("graphs are nested more than {} deep", maxDepth));
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
                       formatted("input '{}' is of type {}, its default of {}", name.text,
                                 onnxName(declared), onnxName(data->elementType())));
  graph.setInputDefault(*input, std::move(data));
  return true;
}

bool TextParser::setTypes(Graph& graph, const std::vector<TypedName>& types) {
  for (const TypedName& name : types) {
    Value* value = graph.findValue(name.text);
    if (!value)
      return cursor.fail(name.offset,
                         formatted("'{}' has a type and nothing defines it", name.text));
    if (!value->producer())
      return cursor.fail(name.offset, formatted("'{}' has two types", name.text));
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
                         formatted("output '{}' is declared {} and is {}", name.text,
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
  // Results are named last, because neither operands nor subgraphs may read them.
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
      return cursor.fail(cursor.offset(), "attributes are both before and after the operands");
    if (!readAttributes(node))
      return false;
  }
  return !cursor.failed() && nameResults(node, results);
}

/// Reads a name such as `com.microsoft.Gelu`; the last dot separates the domain from the operator.
/// `storage` owns the text of `op`.
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

/// Reads a comma-separated list of names and `end`. An empty entry or "" is an absent operand or
/// result; an empty entry after the last comma is ignored.
bool TextParser::readNames(std::vector<Name>& names, char end) {
  while (!cursor.accept(end)) {
    Name& name = names.emplace_back();
    name.offset = cursor.offset();
    if (!cursor.peek().is(',') && !cursor.name(name.text, "a value's name"))
      return false;
    if (!cursor.accept(',') && !cursor.peek().is(end))
      return cursor.unexpected(formatted("`,` or `{}`", end));
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

// Attributes.

namespace {

/// Lookup of attributes is linear in their number.
constexpr size_t maxAttributes = 4096;

AttributeKind listOf(AttributeKind kind) {
  switch (kind) {
  case AttributeKind::Float:
    return AttributeKind::Floats;
  case AttributeKind::Int:
    return AttributeKind::Ints;
  case AttributeKind::String:
    return AttributeKind::Strings;
  case AttributeKind::Tensor:
    return AttributeKind::Tensors;
  case AttributeKind::Graph:
    return AttributeKind::Graphs;
  default:
    return AttributeKind::Undefined;
  }
}

AttributeKind elementOf(AttributeKind list) {
  for (AttributeKind kind : {AttributeKind::Float, AttributeKind::Int, AttributeKind::String,
                             AttributeKind::Tensor, AttributeKind::Graph})
    if (listOf(kind) == list)
      return kind;
  return AttributeKind::Undefined;
}

/// Kind of an attribute in the operator's definition; Undefined if it has none.
AttributeKind definedKind(const Node* node, llvm::StringRef attribute) {
  const OpDef* definition = node ? node->definition() : nullptr;
  const FormalAttribute* formal = definition ? definition->findAttribute(attribute) : nullptr;
  return formal ? formal->kind : AttributeKind::Undefined;
}

} // namespace

Attribute TextParser::makeAttribute(AttributeKind kind, Elements elements) {
  switch (kind) {
  case AttributeKind::Float:
    return Attribute::ofFloat(elements.floats.front());
  case AttributeKind::Int:
    return Attribute::ofInt(elements.ints.front());
  case AttributeKind::String:
    return Attribute::ofString(std::move(elements.strings.front()));
  case AttributeKind::Tensor:
    return Attribute::ofTensor(std::move(elements.tensors.front()));
  case AttributeKind::Floats:
    return Attribute::ofFloats(std::move(elements.floats));
  case AttributeKind::Ints:
    return Attribute::ofInts(std::move(elements.ints));
  case AttributeKind::Strings:
    return Attribute::ofStrings(std::move(elements.strings));
  case AttributeKind::Tensors:
    return Attribute::ofTensors(std::move(elements.tensors));
  default:
    assert(kind == AttributeKind::Graph || kind == AttributeKind::Graphs);
    return Attribute::ofGraphs(std::move(elements.graphs), kind == AttributeKind::Graphs);
  }
}

bool TextParser::readAttributes(Node& node) {
  if (!cursor.expect('<', "before attributes"))
    return false;
  while (!cursor.peek().is('>')) {
    std::string name;
    size_t place = cursor.offset();
    if (!cursor.name(name, "an attribute's name"))
      return false;
    if (name == "metadata_props" && cursor.peek().is(':') && cursor.peekNext().is('[')) {
      Metadata metadata;
      cursor.take();
      if (!readPairs(metadata))
        return false;
      node.setMetadata(std::move(metadata));
    } else {
      if (node.attribute(name))
        return cursor.fail(place, formatted("attribute '{}' is given twice", name));
      if (node.attributes().size() == maxAttributes)
        return cursor.fail(place, formatted("more than {} attributes", maxAttributes));
      Attribute attribute;
      if (!readAttribute(name, &node, attribute))
        return false;
      node.setAttribute(name, std::move(attribute));
    }
    if (!cursor.accept(','))
      break;
  }
  return cursor.expect('>', "after attributes");
}

/// Reads the part after an attribute's name: `= value` or `: kind = value`.
bool TextParser::readAttribute(llvm::StringRef name, Node* holder, Attribute& attribute) {
  AttributeKind stated = AttributeKind::Undefined;
  if (cursor.accept(':')) {
    size_t place = cursor.offset();
    std::string word;
    if (!cursor.identifier(word, "an attribute's kind"))
      return false;
    stated = attributeKindFromName(word);
    if (stated == AttributeKind::Undefined)
      return cursor.fail(place, formatted("`{}` is not a kind of attribute", word),
                         "kinds are int, float, string, tensor, graph and their plurals");
  }
  if (!cursor.expect('=', "after an attribute's name"))
    return false;
  if (cursor.accept('@'))
    return readReference(name, holder, stated, attribute);
  // An integer is a float if the operator's definition requires a float.
  AttributeKind wanted = stated != AttributeKind::Undefined ? stated : definedKind(holder, name);
  size_t place = cursor.offset();
  if (cursor.peek().is('[')) {
    if (!readList(wanted, holder, attribute))
      return false;
  } else {
    AttributeKind kind = AttributeKind::Undefined;
    Elements elements;
    if (!readElement(wanted, holder, kind, elements))
      return false;
    attribute = makeAttribute(kind, std::move(elements));
  }
  if (stated != AttributeKind::Undefined && stated != attribute.kind())
    return cursor.fail(place,
                       formatted("attribute '{}' is declared {} and its value is {}", name,
                                 attributeKindName(stated), attributeKindName(attribute.kind())));
  return true;
}

bool TextParser::readReference(llvm::StringRef name, const Node* holder, AttributeKind kind,
                               Attribute& attribute) {
  std::string target;
  size_t place = cursor.offset();
  if (!cursor.name(target, "the name of a function's attribute"))
    return false;
  if (!function || !holder)
    return cursor.fail(place, "an attribute reference outside a function's body");
  auto known = llvm::find_if(function->defaults,
                             [&](const NamedAttribute& entry) { return entry.name == target; });
  bool hasDefault = known != function->defaults.end();
  if (!hasDefault && !llvm::is_contained(function->attributes, target))
    return cursor.fail(place, formatted("the function has no attribute '{}'", target));
  if (kind == AttributeKind::Undefined)
    kind = definedKind(holder, name);
  if (kind == AttributeKind::Undefined && hasDefault)
    kind = known->value.kind();
  attribute = Attribute::reference(std::move(target), kind);
  return true;
}

bool TextParser::readList(AttributeKind kind, Node* holder, Attribute& attribute) {
  size_t place = cursor.offset();
  cursor.take();
  AttributeKind expected = elementOf(kind);
  AttributeKind element = AttributeKind::Undefined;
  Elements elements;
  while (!cursor.peek().is(']')) {
    size_t elementPlace = cursor.offset();
    AttributeKind found = AttributeKind::Undefined;
    if (!readElement(expected, holder, found, elements))
      return false;
    if (element == AttributeKind::Undefined)
      element = found;
    if (found != element)
      return cursor.fail(elementPlace,
                         formatted("a list of {} with an element that is {}",
                                   attributeKindName(listOf(element)), attributeKindName(found)),
                         "`name: floats = [1, 2.5]` makes all of them floats");
    if (!cursor.accept(','))
      break;
  }
  if (!cursor.expect(']', "after a list"))
    return false;
  if (element == AttributeKind::Undefined)
    element = expected;
  if (element == AttributeKind::Undefined)
    return cursor.fail(place, "an empty list must state its kind", "write `name: ints = []`");
  attribute = makeAttribute(listOf(element), std::move(elements));
  return true;
}

/// Appends one value to the vector of its kind. With an `expected` kind of floats, converts
/// integers; the caller checks other mismatches.
bool TextParser::readElement(AttributeKind expected, Node* holder, AttributeKind& kind,
                             Elements& elements) {
  const Token& token = cursor.peek();
  bool isFloat = token.kind == Token::Kind::Float ||
                 (token.kind == Token::Kind::Identifier && isSpecialFloat(token.text)) ||
                 (token.kind == Token::Kind::Integer && expected == AttributeKind::Float);
  if (isFloat) {
    kind = AttributeKind::Float;
    return readFloat(elements);
  }
  if (token.kind == Token::Kind::Integer) {
    kind = AttributeKind::Int;
    return cursor.integer(elements.ints.emplace_back(), "an integer");
  }
  if (token.kind == Token::Kind::String && !cursor.peekNext().is('(')) {
    kind = AttributeKind::String;
    return cursor.string(elements.strings.emplace_back(), "a string");
  }
  if (atType(cursor)) {
    kind = AttributeKind::Tensor;
    return readTensor(elements);
  }
  if (!cursor.atName())
    return cursor.unexpected("an attribute's value");
  kind = AttributeKind::Graph;
  return readSubgraph(holder, elements);
}

bool TextParser::readFloat(Elements& elements) {
  const Token& token = cursor.peek();
  std::optional<float> value = floatFromText(token.text);
  if (!value)
    return cursor.fail(token.offset,
                       formatted("`{}` is too large for a float", token.text.take_front(40)));
  elements.floats.push_back(*value);
  cursor.take();
  return true;
}

bool TextParser::readTensor(Elements& elements) {
  size_t place = cursor.offset();
  TensorType type;
  std::string ignored; // the name of a tensor has no meaning in an attribute
  if (!readType(cursor, type))
    return false;
  if (cursor.atName() && !cursor.name(ignored, "a tensor's name"))
    return false;
  cursor.accept('=');
  return readTensorLiteral(cursor, type, place, elements.tensors.emplace_back());
}

bool TextParser::readSubgraph(Node* holder, Elements& elements) {
  if (!holder)
    return cursor.fail(cursor.offset(), "a graph cannot be the default of an attribute");
  Graph& outer = holder->graph();
  elements.graphs.push_back(std::make_unique<Graph>(outer.context(), outer.opsets(), holder));
  return readGraph(*elements.graphs.back());
}

} // namespace kvopt::ir
