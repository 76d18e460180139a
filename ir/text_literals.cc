// Types, tensors and attribute values in ONNX's textual syntax.
#include "ir/half.h"
#include "ir/op.h"
#include "ir/text_parser.h"

#include "llvm/ADT/StringExtras.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace kvopt {
namespace {

template <class T> void append(std::vector<std::byte>& bytes, T value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof(T));
}

/// Whether an integer is a value of the element type.
bool fits(ElementType type, int64_t value) {
  switch (type) {
  case ElementType::Int8:
    return value >= INT8_MIN && value <= INT8_MAX;
  case ElementType::UInt8:
    return value >= 0 && value <= UINT8_MAX;
  case ElementType::Int16:
    return value >= INT16_MIN && value <= INT16_MAX;
  case ElementType::UInt16:
    return value >= 0 && value <= UINT16_MAX;
  case ElementType::Int32:
    return value >= INT32_MIN && value <= INT32_MAX;
  case ElementType::UInt32:
    return value >= 0 && value <= UINT32_MAX;
  case ElementType::Bool:
    return value == 0 || value == 1;
  default:
    return type == ElementType::Int64;
  }
}

/// The types whose elements the syntax can spell; all others are written as hexadecimal bytes.
bool isSpelledOut(ElementType type) {
  switch (type) {
  case ElementType::Float:
  case ElementType::Double:
  case ElementType::Float16:
  case ElementType::BFloat16:
    return true;
  default:
    return fits(type, 0) || type == ElementType::UInt64;
  }
}

std::optional<double> parseReal(const Token& token) {
  llvm::StringRef text = token.text;
  bool isWord = token.kind == Token::Kind::Identifier;
  if (!isWord && token.kind != Token::Kind::Integer && token.kind != Token::Kind::Float)
    return std::nullopt;
  bool negative = text.consume_front("-");
  if (!negative)
    text.consume_front("+");
  double value = 0;
  if (text == "inf" || text == "infinity")
    value = std::numeric_limits<double>::infinity();
  else if (text == "nan")
    value = std::numeric_limits<double>::quiet_NaN();
  else if (isWord || text.getAsDouble(value))
    return std::nullopt;
  return negative ? -value : value;
}

} // namespace

bool TextParser::startsType() const {
  const Token& next = lexer.peek();
  if (next.kind != Token::Kind::Identifier || !elementTypeFromOnnxName(next.text))
    return false;
  // A value may be called `float`: a type is followed by a name or by its extents.
  return !lexer.isFollowedBy(',') && !lexer.isFollowedBy(')') && !lexer.isFollowedBy('=');
}

llvm::Expected<Dim> TextParser::extent() {
  const Token& next = lexer.peek();
  if (lexer.takeIf('?'))
    return Dim::unknown();
  if (next.kind == Token::Kind::Integer) {
    Token at = next;
    auto value = integer();
    if (!value)
      return value.takeError();
    if (*value < 0)
      return lexer.error(at, "an extent is negative");
    return Dim::fixed(*value);
  }
  auto text = name("an extent");
  if (!text)
    return text.takeError();
  if (std::optional<Dim> expression = Dim::parse(*text))
    return *expression;
  return Dim::symbol(*text);
}

llvm::Expected<TensorType> TextParser::type() {
  auto element = elementTypeFromOnnxName(lexer.peek().text);
  if (lexer.peek().kind != Token::Kind::Identifier || !element)
    return lexer.expected("a type");
  lexer.take();
  // As published: no brackets are rank 0, empty brackets an unknown rank.
  if (!lexer.takeIf('['))
    return TensorType(*element, Shape());
  if (lexer.takeIf(']'))
    return TensorType(*element);
  Shape shape;
  do {
    auto dim = extent();
    if (!dim)
      return dim.takeError();
    shape.push_back(std::move(*dim));
  } while (lexer.takeIf(','));
  if (llvm::Error error = expect(']'))
    return error;
  return TensorType(*element, std::move(shape));
}

llvm::Error TextParser::element(ElementType elementType, std::vector<std::byte>& bytes) {
  Token at = lexer.take();
  if (isFloatingPoint(elementType)) {
    std::optional<double> value = parseReal(at);
    if (!value)
      return lexer.error(at, "expected a number, found '" + at.text + "'");
    auto single = static_cast<float>(*value);
    switch (elementType) {
    case ElementType::Double:
      append(bytes, *value);
      break;
    case ElementType::Float16:
      append(bytes, floatToF16(single));
      break;
    case ElementType::BFloat16:
      append(bytes, floatToBf16(single));
      break;
    default:
      append(bytes, single);
    }
    return llvm::Error::success();
  }
  llvm::StringRef digits = at.text;
  uint64_t wide = 0;
  if (elementType == ElementType::UInt64) {
    if (at.kind != Token::Kind::Integer || digits.getAsInteger(10, wide))
      return lexer.error(at, "'" + at.text + "' is no uint64");
    append(bytes, wide);
    return llvm::Error::success();
  }
  int64_t value = 0;
  bool isWord = elementType == ElementType::Bool && (digits == "true" || digits == "false");
  if (isWord)
    value = digits == "true";
  else if (at.kind != Token::Kind::Integer || digits.getAsInteger(10, value))
    return lexer.error(at, "expected an integer, found '" + at.text + "'");
  if (!fits(elementType, value))
    return lexer.error(at, "'" + at.text + "' is no value of the element type");
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), first, first + *byteWidth(elementType));
  return llvm::Error::success();
}

llvm::Expected<TensorRef> TextParser::rawContents(const TensorType& tensorType,
                                                  llvm::ArrayRef<int64_t> shape) {
  Token at = lexer.peek();
  auto digits = string();
  if (!digits)
    return digits.takeError();
  std::string packed;
  if (!llvm::tryGetFromHex(*digits, packed))
    return lexer.error(at, "expected hexadecimal digits");
  std::vector<std::byte> bytes(packed.size());
  if (!packed.empty())
    std::memcpy(bytes.data(), packed.data(), packed.size());
  return makeTensor(tensorType.elementType(), shape, std::move(bytes));
}

llvm::Expected<TensorRef> TextParser::tensorContents(const TensorType& tensorType) {
  Token at = lexer.peek();
  auto shape = tensorType.fixedShape();
  ElementType elementType = tensorType.elementType();
  // `float w = {…}` and `float[] w = {…}` take their extent from the list.
  bool fromList = !tensorType.hasRank();
  if (!fromList && !shape)
    return lexer.error(at, "the extents of a tensor must be numbers");
  if (!isSpelledOut(elementType)) {
    if (fromList)
      return lexer.error(at, "a tensor of this element type needs extents");
    return rawContents(tensorType, *shape);
  }
  if (llvm::Error error = expect('{'))
    return error;
  // Memory grows with the text, not with the extents it claims.
  std::vector<std::byte> bytes;
  int64_t count = 0;
  while (!lexer.takeIf('}')) {
    if (llvm::Error error = element(elementType, bytes))
      return error;
    ++count;
    if (!lexer.takeIf(',') && !lexer.peek().is('}'))
      return lexer.expected("',' or '}'");
  }
  llvm::SmallVector<int64_t, 4> extents = fromList ? llvm::SmallVector<int64_t, 4>{count} : *shape;
  auto wanted = checkedElementCount(extents);
  if (!wanted)
    return lexer.error(at, toString(wanted.takeError()));
  if (*wanted != count)
    return lexer.error(at, "the tensor has " + std::to_string(count) +
                               " elements, its type needs " + std::to_string(*wanted));
  return makeTensor(elementType, extents, std::move(bytes));
}

llvm::Expected<float> TextParser::floatNumber() {
  std::optional<double> value = parseReal(lexer.peek());
  if (!value)
    return lexer.expected("a number");
  lexer.take();
  return static_cast<float>(*value);
}

llvm::Error TextParser::attributeList(Graph& graph, Node* owner, OpName op,
                                      std::vector<NamedAttribute>& attributes) {
  if (llvm::Error error = expect('<'))
    return error;
  while (!lexer.takeIf('>')) {
    Token at = lexer.peek();
    auto attributeName = name("an attribute's name");
    if (!attributeName)
      return attributeName.takeError();
    for (const NamedAttribute& earlier : attributes)
      if (earlier.name == *attributeName)
        return lexer.error(at, "attribute '" + *attributeName + "' is given twice");
    AttributeKind kind = AttributeKind::Undefined;
    if (lexer.takeIf(':')) {
      Token kindToken = lexer.peek();
      auto kindName = name("an attribute's type");
      if (!kindName)
        return kindName.takeError();
      kind = attributeKindFromName(*kindName);
      if (kind == AttributeKind::Undefined)
        return lexer.error(kindToken, "'" + *kindName + "' is no attribute type");
    } else if (const OpDef* definition =
                   graph.context().ops().find(op, graph.opsetVersion(op.domain()))) {
      if (const FormalAttribute* formal = definition->findAttribute(*attributeName))
        kind = formal->kind;
    }
    if (llvm::Error error = expect('='))
      return error;
    auto value = attributeValue(graph, owner, kind);
    if (!value)
      return value.takeError();
    attributes.push_back({std::move(*attributeName), std::move(*value)});
    if (!lexer.takeIf(',') && !lexer.peek().is('>'))
      return lexer.expected("',' or '>'");
  }
  return llvm::Error::success();
}

llvm::Expected<Attribute> TextParser::attributeValue(Graph& graph, Node* owner,
                                                     AttributeKind declared) {
  const Token& next = lexer.peek();
  if (lexer.takeIf('@')) {
    auto outer = name("an attribute of the function");
    if (!outer)
      return outer.takeError();
    return Attribute::reference(std::move(*outer), declared);
  }
  if (next.is('['))
    return listValue(graph, owner, declared);
  if (next.kind == Token::Kind::String)
    return Attribute::ofString(lexer.take().text);
  if (next.kind == Token::Kind::Integer && declared != AttributeKind::Float) {
    auto value = integer();
    if (!value)
      return value.takeError();
    return Attribute::ofInt(*value);
  }
  if (parseReal(next)) {
    auto value = floatNumber();
    if (!value)
      return value.takeError();
    return Attribute::ofFloat(*value);
  }
  if (startsType()) {
    auto tensorType = type();
    if (!tensorType)
      return tensorType.takeError();
    // A tensor in an attribute may carry a name, which has no meaning.
    if (!lexer.peek().is('{') && lexer.peek().kind == Token::Kind::Identifier) {
      lexer.take();
      lexer.takeIf('=');
    }
    auto data = tensorContents(*tensorType);
    if (!data)
      return data.takeError();
    return Attribute::ofTensor(std::move(*data));
  }
  std::vector<std::unique_ptr<Graph>> graphs;
  graphs.push_back(std::make_unique<Graph>(graph.context(), graph.opsets(), owner));
  if (llvm::Error error = graphBody(*graphs.back()))
    return error;
  return Attribute::ofGraphs(std::move(graphs), /*list=*/false);
}

llvm::Expected<Attribute> TextParser::listValue(Graph& graph, Node* owner, AttributeKind declared) {
  Token at = lexer.take();
  std::vector<Attribute> elements;
  while (!lexer.takeIf(']')) {
    auto element = attributeValue(graph, owner,
                                  declared == AttributeKind::Floats ? AttributeKind::Float
                                                                    : AttributeKind::Undefined);
    if (!element)
      return element.takeError();
    elements.push_back(std::move(*element));
    if (!lexer.takeIf(',') && !lexer.peek().is(']'))
      return lexer.expected("',' or ']'");
  }
  AttributeKind kind = elements.empty() ? AttributeKind::Undefined : elements.front().kind();
  bool anyFloat = false;
  for (const Attribute& element : elements) {
    bool isNumber = element.kind() == AttributeKind::Float || element.kind() == AttributeKind::Int;
    bool wantsNumber = kind == AttributeKind::Float || kind == AttributeKind::Int;
    if (element.isReference() || (isNumber ? !wantsNumber : element.kind() != kind))
      return lexer.error(at, "the elements of a list must be of one kind");
    anyFloat |= element.kind() == AttributeKind::Float;
  }
  if (elements.empty() ? declared == AttributeKind::Floats : anyFloat) {
    std::vector<float> values;
    for (const Attribute& element : elements)
      values.push_back(element.kind() == AttributeKind::Float
                           ? element.floatValue()
                           : static_cast<float>(element.intValue()));
    return Attribute::ofFloats(std::move(values));
  }
  if (kind == AttributeKind::String || declared == AttributeKind::Strings) {
    std::vector<std::string> values;
    for (const Attribute& element : elements)
      values.push_back(element.stringValue().str());
    return Attribute::ofStrings(std::move(values));
  }
  if (kind == AttributeKind::Tensor || declared == AttributeKind::Tensors) {
    std::vector<TensorRef> values;
    for (const Attribute& element : elements)
      values.push_back(element.tensorValue());
    return Attribute::ofTensors(std::move(values));
  }
  if (kind == AttributeKind::Graph || declared == AttributeKind::Graphs)
    return lexer.error(at, "lists of graphs are not supported");
  std::vector<int64_t> values;
  for (const Attribute& element : elements)
    values.push_back(element.intValue());
  return Attribute::ofInts(std::move(values));
}

} // namespace kvopt
