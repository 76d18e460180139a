// Reader of ONNX's textual syntax: attributes.
#include "ir/op.h"
#include "ir/text/parser.h"
#include "ir/text/types.h"
#include "ir/text/values.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {
namespace {

/// Nodes look attributes up one after the other.
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

/// The kind that the operator's definition gives an attribute; Undefined when it gives none.
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
        return cursor.fail(place, fmt::format("attribute '{}' is given twice", name));
      if (node.attributes().size() == maxAttributes)
        return cursor.fail(place, fmt::format("more than {} attributes", maxAttributes));
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

/// What follows an attribute's name: `= value` or `: kind = value`.
bool TextParser::readAttribute(llvm::StringRef name, Node* holder, Attribute& attribute) {
  AttributeKind stated = AttributeKind::Undefined;
  if (cursor.accept(':')) {
    size_t place = cursor.offset();
    std::string word;
    if (!cursor.identifier(word, "an attribute's kind"))
      return false;
    stated = attributeKindFromName(word);
    if (stated == AttributeKind::Undefined)
      return cursor.fail(place, fmt::format("`{}` is no kind of attribute", word),
                         "kinds are int, float, string, tensor, graph and their plurals");
  }
  if (!cursor.expect('=', "after an attribute's name"))
    return false;
  if (cursor.accept('@'))
    return readReference(name, holder, stated, attribute);
  // An integer is a float where the operator's definition wants one.
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
                       fmt::format("attribute '{}' is declared {} and its value is {}", name,
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
    return cursor.fail(place, fmt::format("the function has no attribute '{}'", target));
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
                         fmt::format("a list of {} with an element that is {}",
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

/// Appends one value to the vector of its kind. `expected` turns integers into floats; whether the
/// kinds agree otherwise is for the caller to say.
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
                       fmt::format("`{}` is too large for a float", token.text.take_front(40)));
  elements.floats.push_back(*value);
  cursor.take();
  return true;
}

bool TextParser::readTensor(Elements& elements) {
  size_t place = cursor.offset();
  TensorType type;
  std::string ignored; // a tensor's name says nothing in an attribute
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
