// Reading and printing of tensor types.
#include "ir/text/types.h"
#include "support/format.h"

namespace kvopt::ir {
namespace {

std::optional<ElementType> elementTypeOf(llvm::StringRef word) {
  if (word == "undefined")
    return ElementType::Undefined;
  int32_t number = 0;
  if (word.consume_front("dtype_")) {
    if (word.getAsInteger(10, number) || number < 0)
      return std::nullopt;
    return static_cast<ElementType>(number);
  }
  return elementTypeFromOnnxName(word);
}

std::string elementTypeText(ElementType type) {
  llvm::StringRef name = onnxName(type);
  if (type == ElementType::Undefined || name != "undefined")
    return name.str();
  return formatted("dtype_{}", static_cast<int32_t>(type));
}

bool readDim(TextCursor& cursor, Dim& dim) {
  const Token& token = cursor.peek();
  if (cursor.accept('?')) {
    dim = Dim::unknown();
    return true;
  }
  if (token.kind == Token::Kind::Integer) {
    size_t place = cursor.offset();
    int64_t extent = 0;
    if (!cursor.integer(extent, "an extent"))
      return false;
    if (extent < 0)
      return cursor.fail(place, "a negative extent", "write `?` for an extent that is not known");
    dim = Dim::fixed(extent);
    return true;
  }
  if (token.kind == Token::Kind::Identifier) {
    dim = Dim::symbol(cursor.take().text);
    return true;
  }
  std::string expression;
  size_t place = cursor.offset();
  if (!cursor.string(expression, "an extent: a number, a name, `?` or a quoted expression"))
    return false;
  std::optional<Dim> parsed = Dim::parse(expression);
  dim = parsed ? *parsed : Dim::symbol(expression);
  if (dim.value().value_or(0) < 0)
    return cursor.fail(place, "a negative extent", "write `?` for an extent that is not known");
  return true;
}

std::string dimText(const Dim& dim) {
  if (dim.isUnknown() || dim.value().value_or(0) < 0)
    return "?";
  std::string text = dim.str();
  return dim.value() || isTextIdentifier(text) ? text : quotedText(text);
}

} // namespace

bool atType(const TextCursor& cursor) {
  return cursor.peek().kind == Token::Kind::Identifier && isTypeWord(cursor.peek().text);
}

bool readType(TextCursor& cursor, TensorType& type) {
  if (!atType(cursor))
    return cursor.unexpected("a type");
  llvm::StringRef word = cursor.peek().text;
  std::optional<ElementType> element = elementTypeOf(word);
  if (!element)
    return cursor.fail(cursor.offset(), formatted("`{}` types cannot be read from text", word),
                       "only tensors can");
  cursor.take();
  type = TensorType(*element, Shape());
  if (!cursor.accept('['))
    return true;
  if (cursor.accept(']')) {
    type = TensorType(*element);
    return true;
  }
  Shape shape;
  do
    if (!readDim(cursor, shape.emplace_back()))
      return false;
  while (cursor.accept(','));
  type = TensorType(*element, std::move(shape));
  return cursor.expect(']', "after a type's extents");
}

std::string typeText(const TensorType& type) {
  if (!type.hasRank())
    return type.elementType() == ElementType::Undefined
               ? std::string()
               : elementTypeText(type.elementType()) + "[]";
  std::string text = elementTypeText(type.elementType());
  for (unsigned axis = 0; axis < type.rank(); ++axis) {
    text += axis == 0 ? "[" : ", ";
    text += dimText(type.shape()[axis]);
  }
  return type.rank() == 0 ? text : text + ']';
}

} // namespace kvopt::ir
