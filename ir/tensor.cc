// TensorData: checked construction and reading of small tensors.
#include "ir/tensor.h"

#include "support/diagnostic.h"
#include "support/half.h"

#include <cstring>

namespace kvopt::ir {
namespace {

/// A tensor that owns its bytes.
class OwnedTensor final : public TensorData {
public:
  OwnedTensor(ElementType type, llvm::ArrayRef<int64_t> shape, int64_t elements,
              std::vector<std::byte> packed)
      : TensorData(type, llvm::SmallVector<int64_t, 4>(shape.begin(), shape.end()), elements),
        contents(std::move(packed)) {}

  llvm::Expected<std::span<const std::byte>> bytes() const override {
    return std::span<const std::byte>(contents);
  }

private:
  std::vector<std::byte> contents;
};

template <typename T>
TensorRef ownedTensor(ElementType type, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<T> values) {
  std::vector<std::byte> contents(values.size() * sizeof(T));
  if (!values.empty())
    std::memcpy(contents.data(), values.data(), contents.size());
  return std::make_shared<OwnedTensor>(type, shape, static_cast<int64_t>(values.size()),
                                       std::move(contents));
}

template <typename T> T load(std::span<const std::byte> bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

std::optional<std::span<const std::byte>> bytesOrNone(const TensorData& tensor) {
  auto bytes = tensor.bytes();
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return std::nullopt;
  }
  return *bytes;
}

} // namespace

std::optional<int64_t> TensorData::byteSize() const {
  llvm::Expected<int64_t> size = checkedByteSize(element, count);
  if (!size) {
    llvm::consumeError(size.takeError());
    return std::nullopt;
  }
  return *size;
}

llvm::Error TensorData::stream(ByteSink sink) const {
  llvm::Expected<std::span<const std::byte>> all = bytes();
  return all ? sink(*all) : all.takeError();
}

llvm::Expected<int64_t> checkedElementCount(llvm::ArrayRef<int64_t> shape) {
  int64_t count = 1;
  bool overflow = false;
  bool empty = false;
  for (int64_t extent : shape) {
    if (extent < 0)
      return invalid("a tensor has the negative extent {}", extent);
    empty |= extent == 0;
    overflow |= __builtin_mul_overflow(count, extent == 0 ? 1 : extent, &count);
  }
  if (overflow)
    return invalid("a tensor's number of elements does not fit in 64 bits");
  return empty ? 0 : count;
}

llvm::Expected<int64_t> checkedByteSize(ElementType type, int64_t count) {
  std::optional<unsigned> bits = bitWidth(type);
  if (!bits)
    return unsupported("element type {} has no packed form", static_cast<int32_t>(type));
  int64_t total = 0;
  if (__builtin_mul_overflow(count, static_cast<int64_t>(*bits), &total) ||
      __builtin_add_overflow(total, int64_t{7}, &total))
    return invalid("a tensor's size does not fit in 64 bits");
  return total / 8;
}

llvm::Expected<TensorRef> makeTensor(ElementType type, llvm::ArrayRef<int64_t> shape,
                                     std::vector<std::byte> bytes) {
  llvm::Expected<int64_t> count = checkedElementCount(shape);
  if (!count)
    return count.takeError();
  llvm::Expected<int64_t> size = checkedByteSize(type, *count);
  if (!size)
    return size.takeError();
  if (static_cast<size_t>(*size) != bytes.size())
    return invalid("a tensor holds {} bytes, its shape and type need {}", bytes.size(), *size);
  return std::make_shared<OwnedTensor>(type, shape, *count, std::move(bytes));
}

TensorRef int64Tensor(llvm::ArrayRef<int64_t> values) {
  return ownedTensor<int64_t>(ElementType::Int64, {static_cast<int64_t>(values.size())}, values);
}

TensorRef int64Scalar(int64_t value) {
  return ownedTensor<int64_t>(ElementType::Int64, {}, {value});
}

TensorRef boolTensor(llvm::ArrayRef<bool> values) {
  return ownedTensor<bool>(ElementType::Bool, {static_cast<int64_t>(values.size())}, values);
}

TensorRef floatTensor(llvm::ArrayRef<float> values) {
  return ownedTensor<float>(ElementType::Float, {static_cast<int64_t>(values.size())}, values);
}

TensorRef floatScalar(ElementType type, double value) { return floatScalar(type, value, 0); }

TensorRef floatScalar(ElementType type, double value, unsigned rank) {
  llvm::SmallVector<int64_t, 4> shape(rank, 1);
  auto single = static_cast<float>(value);
  switch (type) {
  case ElementType::Double:
    return ownedTensor<double>(type, shape, {value});
  case ElementType::Float16:
    return ownedTensor<uint16_t>(type, shape, {floatToF16(single)});
  case ElementType::BFloat16:
    return ownedTensor<uint16_t>(type, shape, {floatToBf16(single)});
  default:
    assert(type == ElementType::Float);
    return ownedTensor<float>(type, shape, {single});
  }
}

std::optional<llvm::SmallVector<int64_t, 8>> integerValues(const TensorData& tensor,
                                                           int64_t limit) {
  if (tensor.elementCount() > limit ||
      (!isInteger(tensor.elementType()) && tensor.elementType() != ElementType::Bool))
    return std::nullopt;
  auto bytes = bytesOrNone(tensor);
  if (!bytes)
    return std::nullopt;
  llvm::SmallVector<int64_t, 8> values;
  for (int64_t i = 0; i < tensor.elementCount(); ++i)
    switch (tensor.elementType()) {
    case ElementType::Int64:
      values.push_back(load<int64_t>(*bytes, i));
      break;
    case ElementType::Int32:
      values.push_back(load<int32_t>(*bytes, i));
      break;
    case ElementType::Int16:
      values.push_back(load<int16_t>(*bytes, i));
      break;
    case ElementType::Int8:
      values.push_back(load<int8_t>(*bytes, i));
      break;
    case ElementType::UInt32:
      values.push_back(load<uint32_t>(*bytes, i));
      break;
    case ElementType::UInt16:
      values.push_back(load<uint16_t>(*bytes, i));
      break;
    case ElementType::UInt8:
    case ElementType::Bool:
      values.push_back(load<uint8_t>(*bytes, i));
      break;
    case ElementType::UInt64: {
      uint64_t value = load<uint64_t>(*bytes, i);
      if (value > static_cast<uint64_t>(INT64_MAX))
        return std::nullopt;
      values.push_back(static_cast<int64_t>(value));
      break;
    }
    default: // packed sub-byte integers
      return std::nullopt;
    }
  return values;
}

std::optional<llvm::SmallVector<double, 8>> floatValues(const TensorData& tensor, int64_t limit) {
  if (tensor.elementCount() > limit || !isFloatingPoint(tensor.elementType()))
    return std::nullopt;
  auto bytes = bytesOrNone(tensor);
  if (!bytes)
    return std::nullopt;
  llvm::SmallVector<double, 8> values;
  for (int64_t i = 0; i < tensor.elementCount(); ++i)
    switch (tensor.elementType()) {
    case ElementType::Float:
      values.push_back(static_cast<double>(load<float>(*bytes, i)));
      break;
    case ElementType::Double:
      values.push_back(load<double>(*bytes, i));
      break;
    case ElementType::Float16:
      values.push_back(static_cast<double>(f16ToFloat(load<uint16_t>(*bytes, i))));
      break;
    case ElementType::BFloat16:
      values.push_back(static_cast<double>(bf16ToFloat(load<uint16_t>(*bytes, i))));
      break;
    default:
      return std::nullopt;
    }
  return values;
}

std::optional<double> scalarValue(const TensorData& tensor) {
  if (tensor.elementCount() != 1)
    return std::nullopt;
  if (auto integers = integerValues(tensor, 1))
    return static_cast<double>((*integers)[0]);
  if (auto floats = floatValues(tensor, 1))
    return (*floats)[0];
  return std::nullopt;
}

} // namespace kvopt::ir
