// Reading and printing of tensor literals and floats.
#include "ir/text/values.h"

#include "ir/late_element_types.h"
#include "ir/onnx/tensor.h"
#include "support/half.h"
#include "support/string_ends.h"

#include "llvm/ADT/APFloat.h"

#include <cstring>

namespace kvopt::ir {
namespace {

const llvm::fltSemantics* semanticsOf(ElementType type) {
  switch (type) {
  case ElementType::Float:
  case ElementType::Complex64:
    return &llvm::APFloat::IEEEsingle();
  case ElementType::Double:
  case ElementType::Complex128:
    return &llvm::APFloat::IEEEdouble();
  case ElementType::Float16:
    return &llvm::APFloat::IEEEhalf();
  case ElementType::BFloat16:
    return &llvm::APFloat::BFloat();
  default:
    return nullptr;
  }
}

/// Bit pattern of a number; nullopt if it overflows.
std::optional<uint64_t> floatBits(llvm::StringRef number, const llvm::fltSemantics& semantics) {
  bool negative = startsWith(number, "-");
  llvm::StringRef magnitude = negative ? number.drop_front() : number;
  llvm::APFloat value(semantics);
  if (isSpecialFloat(magnitude)) {
    value = magnitude.equals_insensitive("nan") ? llvm::APFloat::getQNaN(semantics, negative)
                                                : llvm::APFloat::getInf(semantics, negative);
  } else {
    auto status = value.convertFromString(number, llvm::APFloat::rmNearestTiesToEven);
    if (!status) {
      llvm::consumeError(status.takeError());
      return std::nullopt;
    }
    if (value.isInfinity())
      return std::nullopt;
  }
  return value.bitcastToAPInt().getZExtValue();
}

struct IntegerRange {
  int64_t low = 0;
  uint64_t high = 0;
};

/// For float8 and float4 types, the literal holds bit patterns, as in the published syntax.
IntegerRange rangeOf(ElementType type, unsigned bits) {
  if (type == ElementType::Bool)
    return {0, 1};
  bool isSigned = type == ElementType::Int8 || type == ElementType::Int16 ||
                  type == ElementType::Int32 || type == ElementType::Int64 ||
                  type == ElementType::Int4 || type == int2Type;
  uint64_t all = bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
  if (!isSigned)
    return {0, all};
  return {-static_cast<int64_t>(all / 2) - 1, all / 2};
}

/// Packs elements one after another. Narrow elements start at the low bits.
class ElementPacker {
public:
  ElementPacker(ElementType elementType, unsigned elementBits, size_t bytes)
      : type(elementType), bits(elementBits), range(rangeOf(elementType, elementBits)),
        contents(bytes) {}

  bool read(TextCursor& cursor) {
    std::optional<uint64_t> pattern = semanticsOf(type) ? readFloat(cursor) : readInteger(cursor);
    if (!pattern)
      return false;
    if (bits < 8) {
      contents[position / 8] |= static_cast<std::byte>(*pattern << (position % 8));
    } else {
      std::memcpy(contents.data() + position / 8, &*pattern, bits / 8);
    }
    position += bits;
    return true;
  }

  std::vector<std::byte> take() { return std::move(contents); }

private:
  std::optional<uint64_t> readFloat(TextCursor& cursor) {
    const Token& token = cursor.peek();
    bool number = token.kind == Token::Kind::Integer || token.kind == Token::Kind::Float ||
                  (token.kind == Token::Kind::Identifier && isSpecialFloat(token.text));
    if (!number) {
      cursor.unexpected("a number");
      return std::nullopt;
    }
    std::optional<uint64_t> pattern = floatBits(token.text, *semanticsOf(type));
    if (!pattern)
      cursor.fail(token.offset,
                  formatted("`{}` is too large for {}", token.text.take_front(40), onnxName(type)));
    else
      cursor.take();
    return pattern;
  }

  std::optional<uint64_t> readInteger(TextCursor& cursor) {
    const Token& token = cursor.peek();
    if (type == ElementType::Bool && token.kind == Token::Kind::Identifier &&
        (token.text == "true" || token.text == "false"))
      return cursor.take().text == "true" ? 1 : 0;
    if (token.kind != Token::Kind::Integer) {
      cursor.unexpected(formatted("an integer for {}", onnxName(type)));
      return std::nullopt;
    }
    int64_t negative = 0;
    uint64_t positive = 0;
    bool isNegative = startsWith(token.text, "-");
    bool fits = isNegative ? !token.text.getAsInteger(10, negative) && negative >= range.low
                           : !token.text.getAsInteger(10, positive) && positive <= range.high;
    if (!fits) {
      cursor.fail(token.offset,
                  formatted("`{}` does not fit in {}", token.text.take_front(40), onnxName(type)));
      return std::nullopt;
    }
    cursor.take();
    uint64_t mask = bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
    return (isNegative ? static_cast<uint64_t>(negative) : positive) & mask;
  }

  ElementType type;
  unsigned bits;
  IntegerRange range;
  std::vector<std::byte> contents;
  size_t position = 0;
};

/// Reads `count` comma-separated elements up to the closing brace.
bool readElements(TextCursor& cursor, int64_t count, llvm::function_ref<bool()> readOne) {
  int64_t seen = 0;
  while (!cursor.peek().is('}')) {
    if (seen == count)
      return cursor.fail(cursor.offset(), formatted("more than the {} elements of the tensor's "
                                                    "shape",
                                                    count));
    if (!readOne())
      return false;
    ++seen;
    if (!cursor.accept(','))
      break;
  }
  if (!cursor.peek().is('}'))
    return cursor.unexpected("`,` or `}` in a tensor");
  if (seen != count)
    return cursor.fail(cursor.offset(),
                       formatted("{} elements for a shape that has {}", seen, count));
  return cursor.expect('}', "after a tensor's elements");
}

bool readStrings(TextCursor& cursor, llvm::ArrayRef<int64_t> shape, int64_t count,
                 TensorRef& tensor) {
  auto message = std::make_shared<onnx::TensorProto>();
  message->set_data_type(onnx::TensorProto::STRING);
  for (int64_t extent : shape)
    message->add_dims(extent);
  bool read = readElements(
      cursor, count, [&] { return cursor.string(*message->add_string_data(), "a quoted string"); });
  if (!read)
    return false;
  llvm::Expected<TensorRef> made = tensorOf(*message, message, nullptr);
  if (!made)
    return cursor.fail(cursor.offset(), takeDiagnostic(made.takeError()).message);
  tensor = std::move(*made);
  return true;
}

template <typename T> T load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

std::string elementText(ElementType type, unsigned bits, std::span<const std::byte> bytes,
                        size_t index) {
  if (bits < 8) {
    auto packed = std::to_integer<unsigned>(bytes[index * bits / 8]);
    unsigned value = (packed >> (index * bits % 8)) & ((1u << bits) - 1);
    bool isSigned = type == ElementType::Int4 || type == int2Type;
    bool negative = isSigned && value >= 1u << (bits - 1);
    return std::to_string(static_cast<int>(value) - (negative ? 1 << bits : 0));
  }
  const std::byte* at = bytes.data() + index * (bits / 8);
  switch (type) {
  case ElementType::Float:
  case ElementType::Complex64:
    return formatted("{}", load<float>(at));
  case ElementType::Double:
  case ElementType::Complex128:
    return formatted("{}", load<double>(at));
  case ElementType::Float16:
    return formatted("{}", f16ToFloat(load<uint16_t>(at)));
  case ElementType::BFloat16:
    return formatted("{}", bf16ToFloat(load<uint16_t>(at)));
  case ElementType::Int8:
    return std::to_string(load<int8_t>(at));
  case ElementType::Int16:
    return std::to_string(load<int16_t>(at));
  case ElementType::Int32:
    return std::to_string(load<int32_t>(at));
  case ElementType::Int64:
    return std::to_string(load<int64_t>(at));
  case ElementType::UInt16:
    return std::to_string(load<uint16_t>(at));
  case ElementType::UInt32:
    return std::to_string(load<uint32_t>(at));
  case ElementType::UInt64:
    return std::to_string(load<uint64_t>(at));
  default:
    return std::to_string(load<uint8_t>(at));
  }
}

bool isComplex(ElementType type) {
  return type == ElementType::Complex64 || type == ElementType::Complex128;
}

std::string stringsText(const TensorData& tensor, const char* leftOut) {
  const onnx::TensorProto* message = messageOf(tensor);
  if (!message || message->string_data_size() != tensor.elementCount())
    return leftOut;
  std::string text = "{";
  for (const std::string& element : message->string_data()) {
    text += text.size() == 1 ? "" : ", ";
    text += quotedText(element);
  }
  return text + '}';
}

} // namespace

bool readTensorLiteral(TextCursor& cursor, const TensorType& type, size_t typeOffset,
                       TensorRef& tensor) {
  auto shape = type.fixedShape();
  if (!shape)
    return cursor.fail(typeOffset, "a tensor's extents must be numbers");
  llvm::Expected<int64_t> count = checkedElementCount(*shape);
  if (!count)
    return cursor.fail(typeOffset, takeDiagnostic(count.takeError()).message);
  if (cursor.peek().is('['))
    return cursor.fail(cursor.offset(), "external data cannot be read from text",
                       "write the elements in braces");
  if (!cursor.expect('{', "before a tensor's elements"))
    return false;
  if (cursor.peek().kind == Token::Kind::Bad)
    return cursor.unexpected("a tensor's elements");
  // Each element takes at least one character and a comma.
  if (static_cast<uint64_t>(*count) > cursor.remainingBytes())
    return cursor.fail(typeOffset,
                       formatted("the shape has {} elements, more than the text holds", *count));
  if (type.elementType() == ElementType::String)
    return readStrings(cursor, *shape, *count, tensor);
  llvm::Expected<int64_t> bytes = checkedByteSize(type.elementType(), *count);
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return cursor.fail(typeOffset, "tensors of this element type cannot be written as text");
  }
  unsigned parts = isComplex(type.elementType()) ? 2 : 1;
  ElementPacker packer(type.elementType(), *bitWidth(type.elementType()) / parts,
                       static_cast<size_t>(*bytes));
  if (!readElements(cursor, *count * parts, [&] { return packer.read(cursor); }))
    return false;
  llvm::Expected<TensorRef> made = makeTensor(type.elementType(), *shape, packer.take());
  if (!made)
    return cursor.fail(typeOffset, takeDiagnostic(made.takeError()).message);
  tensor = std::move(*made);
  return true;
}

std::string tensorLiteralText(const TensorData& tensor, int64_t maxElements) {
  constexpr const char* leftOut = "{…}";
  if (tensor.elementCount() > maxElements)
    return formatted("{{…{} elements}}", tensor.elementCount());
  if (tensor.elementType() == ElementType::String)
    return stringsText(tensor, leftOut);
  std::optional<unsigned> bits = bitWidth(tensor.elementType());
  auto bytes = tensor.bytes();
  if (!bytes || !bits) {
    llvm::consumeError(bytes.takeError());
    return leftOut;
  }
  unsigned parts = isComplex(tensor.elementType()) ? 2 : 1;
  auto count = static_cast<size_t>(tensor.elementCount()) * parts;
  std::string text = "{";
  for (size_t i = 0; i < count; ++i) {
    text += i == 0 ? "" : ", ";
    text += elementText(tensor.elementType(), *bits / parts, *bytes, i);
  }
  return text + '}';
}

std::optional<float> floatFromText(llvm::StringRef number) {
  std::optional<uint64_t> bits = floatBits(number, llvm::APFloat::IEEEsingle());
  if (!bits)
    return std::nullopt;
  return std::bit_cast<float>(static_cast<uint32_t>(*bits));
}

std::string floatText(float value) {
  std::string text = formatted("{}", value);
  return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
}

} // namespace kvopt::ir
