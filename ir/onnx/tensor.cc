// Contents of TensorProto: raw, typed or external.
#include "ir/onnx/tensor.h"

#include "ir/onnx/file_place.h"

#include "ir/onnx/tensor_messages.h"
#include "support/diagnostic.h"
#include "support/lfs_pointer.h"

#include <cstring>
#include <limits>

namespace kvopt::ir {
namespace {

/// Typed field that stores elements of a type if `raw_data` is not used.
enum class TypedField { None, Float, Int32, Int64, UInt64, Double, String };

struct FieldLayout {
  TypedField field = TypedField::None;
  /// Number of entries of the field for one element (2 for complex numbers).
  int64_t entriesPerElement = 1;
  /// Number of elements in one entry (2 for packed four-bit numbers, 4 for two-bit ones).
  int64_t elementsPerEntry = 1;
};

FieldLayout layoutOf(ElementType type) {
  switch (type) {
  case ElementType::Float:
    return {TypedField::Float};
  case ElementType::Complex64:
    return {TypedField::Float, 2};
  case ElementType::Int64:
    return {TypedField::Int64};
  case ElementType::UInt32:
  case ElementType::UInt64:
    return {TypedField::UInt64};
  case ElementType::Double:
    return {TypedField::Double};
  case ElementType::Complex128:
    return {TypedField::Double, 2};
  case ElementType::String:
    return {TypedField::String};
  case ElementType::Undefined:
    return {};
  default:
    break;
  }
  std::optional<unsigned> bits = bitWidth(type);
  if (!bits || *bits > 32)
    return {};
  return {TypedField::Int32, 1, *bits < 8 ? 8 / *bits : 1};
}

int64_t entriesIn(const onnx::TensorProto& message, TypedField field) {
  switch (field) {
  case TypedField::Float:
    return message.float_data_size();
  case TypedField::Int32:
    return message.int32_data_size();
  case TypedField::Int64:
    return message.int64_data_size();
  case TypedField::UInt64:
    return message.uint64_data_size();
  case TypedField::Double:
    return message.double_data_size();
  case TypedField::String:
    return message.string_data_size();
  case TypedField::None:
    break;
  }
  return 0;
}

/// Checks that the number of elements in the message matches its extents.
llvm::Error checkInlineSize(const onnx::TensorProto& message, ElementType type, int64_t count) {
  if (message.has_raw_data()) {
    if (type == ElementType::String)
      return invalid("a string tensor has raw data");
    if (!bitWidth(type))
      return llvm::Error::success(); // copied but not interpreted
    llvm::Expected<int64_t> needed = checkedByteSize(type, count);
    if (!needed)
      return needed.takeError();
    if (static_cast<uint64_t>(*needed) != message.raw_data().size())
      return invalid("a tensor holds {} bytes, its shape and type need {}",
                     message.raw_data().size(), *needed);
    return llvm::Error::success();
  }
  FieldLayout layout = layoutOf(type);
  if (layout.field == TypedField::None)
    return llvm::Error::success();
  int64_t needed = count / layout.elementsPerEntry + (count % layout.elementsPerEntry != 0);
  int64_t held = entriesIn(message, layout.field);
  if (held % layout.entriesPerElement != 0 || held / layout.entriesPerElement != needed)
    return invalid("a tensor holds {} values, its shape and type need {}",
                   held / layout.entriesPerElement, needed);
  return llvm::Error::success();
}

template <typename T> std::span<const std::byte> bytesOf(const T* data, size_t count) {
  return std::as_bytes(std::span<const T>(data, count));
}

template <typename Narrow, typename Field>
std::vector<std::byte> narrowed(const Field& field, bool asBool = false) {
  std::vector<std::byte> packed(static_cast<size_t>(field.size()) * sizeof(Narrow));
  std::byte* out = packed.data();
  for (auto entry : field) {
    auto value = asBool ? static_cast<Narrow>(entry != 0) : static_cast<Narrow>(entry);
    std::memcpy(out, &value, sizeof(Narrow));
    out += sizeof(Narrow);
  }
  return packed;
}

/// A tensor whose contents are in a message.
class MessageTensor final : public TensorData {
public:
  MessageTensor(const onnx::TensorProto& tensor, llvm::SmallVector<int64_t, 4> shape,
                int64_t elements, std::shared_ptr<const void> messageOwner,
                std::shared_ptr<ExternalFiles> externalFiles)
      : TensorData(static_cast<ElementType>(tensor.data_type()), std::move(shape), elements),
        proto(tensor), owner(std::move(messageOwner)), files(std::move(externalFiles)) {}

  const onnx::TensorProto& message() const { return proto; }

  llvm::Error copyTo(OutputFile& out) const {
    llvm::Expected<ExternalSlice> slice = externalSlice();
    if (!slice)
      return slice.takeError();
    llvm::Expected<ConfinedFolder::File> file =
        files->openDescriptor(externalRangeOf(proto)->location);
    if (!file)
      return located(file.takeError());
    return out.copy(file->descriptor, static_cast<int64_t>(slice->offset),
                    static_cast<int64_t>(slice->length), slice->file->path());
  }

  std::optional<FilePlace> filePlace() const {
    if (!isExternal(proto))
      return std::nullopt;
    llvm::Expected<ExternalSlice> slice = externalSlice();
    if (!slice) {
      llvm::consumeError(slice.takeError());
      return std::nullopt;
    }
    return FilePlace{slice->file->identity(), slice->offset, slice->length};
  }

  llvm::Expected<std::span<const std::byte>> bytes() const override {
    if (isExternal(proto))
      return externalBytes();
    if (proto.has_raw_data() && byteSize())
      return bytesOf(proto.raw_data().data(), proto.raw_data().size());
    FieldLayout layout = layoutOf(elementType());
    switch (layout.field) {
    case TypedField::Float:
      return bytesOf(proto.float_data().data(), static_cast<size_t>(proto.float_data_size()));
    case TypedField::Double:
      return bytesOf(proto.double_data().data(), static_cast<size_t>(proto.double_data_size()));
    case TypedField::Int64:
      return bytesOf(proto.int64_data().data(), static_cast<size_t>(proto.int64_data_size()));
    case TypedField::UInt64:
      if (elementType() == ElementType::UInt64)
        return bytesOf(proto.uint64_data().data(), static_cast<size_t>(proto.uint64_data_size()));
      std::call_once(once, [&] { decoded = narrowed<uint32_t>(proto.uint64_data()); });
      return std::span<const std::byte>(decoded);
    case TypedField::Int32:
      return int32Bytes();
    case TypedField::String:
      return unsupported("a string tensor has no packed form").value(proto.name());
    case TypedField::None:
      break;
    }
    return unsupported("element type {} has no packed form", proto.data_type()).value(proto.name());
  }

private:
  std::span<const std::byte> int32Bytes() const {
    unsigned bits = bitWidth(elementType()).value_or(0);
    if (bits == 32)
      return bytesOf(proto.int32_data().data(), static_cast<size_t>(proto.int32_data_size()));
    std::call_once(once, [&] {
      decoded = bits == 16
                    ? narrowed<uint16_t>(proto.int32_data())
                    : narrowed<uint8_t>(proto.int32_data(), elementType() == ElementType::Bool);
    });
    return decoded;
  }

  llvm::Error located(llvm::Error error) const {
    Diagnostic diagnostic = takeDiagnostic(std::move(error));
    diagnostic.value = proto.name();
    return makeError(std::move(diagnostic));
  }

  llvm::Expected<ExternalSlice> externalSlice() const {
    llvm::Expected<int64_t> needed = checkedByteSize(elementType(), elementCount());
    if (!needed)
      return located(needed.takeError());
    auto slice = externalSliceOf(proto, static_cast<uint64_t>(*needed), *files);
    if (!slice)
      return located(slice.takeError());
    return slice;
  }

  llvm::Expected<std::span<const std::byte>> externalBytes() const {
    llvm::Expected<ExternalSlice> slice = externalSlice();
    if (!slice)
      return slice.takeError();
    return slice->file->bytes().subspan(slice->offset, slice->length);
  }

  const onnx::TensorProto& proto;
  std::shared_ptr<const void> owner;
  std::shared_ptr<ExternalFiles> files; // keeps the result of bytes() mapped
  mutable std::once_flag once;
  mutable std::vector<std::byte> decoded;
};

} // namespace

llvm::Expected<std::shared_ptr<const MappedFile>> ExternalFiles::open(const std::string& location) {
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<const MappedFile>& file = files[location];
  if (!file) {
    MappedFile::Result opened = MappedFile::openBeneath(folder, location);
    if (!opened)
      return opened.takeError();
    if (llvm::Error error = checkNoLfsPointer((*opened)->bytes()))
      return withFile(std::move(error), (*opened)->path());
    file = std::move(*opened);
    if (expectsFewReads)
      file->expectFewReads();
  }
  return file;
}

void ExternalFiles::expectFewReads() {
  std::lock_guard<std::mutex> lock(mutex);
  expectsFewReads = true;
  for (const auto& entry : files)
    if (entry.second)
      entry.second->expectFewReads();
}

llvm::Expected<ExternalRange> externalRangeOf(const onnx::TensorProto& message) {
  ExternalRange range;
  for (const onnx::StringStringEntryProto& entry : message.external_data()) {
    llvm::StringRef key = entry.key();
    llvm::StringRef text = entry.value();
    uint64_t number = 0;
    if (key == "location") {
      range.location = entry.value();
    } else if (key == "offset" || key == "length") {
      if (text.getAsInteger(10, number))
        return invalid("external data has the {} '{}'", key, text);
      if (key == "offset")
        range.offset = number;
      else
        range.length = number;
    }
  }
  if (range.location.empty())
    return invalid("external data without a location");
  return range;
}

llvm::Expected<ExternalSlice> externalSliceOf(const onnx::TensorProto& message, uint64_t size,
                                              ExternalFiles& files) {
  llvm::Expected<ExternalRange> range = externalRangeOf(message);
  if (!range)
    return range.takeError();
  auto file = files.open(range->location);
  if (!file)
    return file.takeError();
  const uint64_t fileSize = (*file)->bytes().size();
  const uint64_t length =
      range->length.value_or(fileSize >= range->offset ? fileSize - range->offset : size);
  if (length != size)
    return invalid("the tensor has {} bytes of external data, its shape and type need {}", length,
                   size)
        .file((*file)->path());
  if (auto slice = (*file)->slice(range->offset, length); !slice)
    return slice.takeError();
  return ExternalSlice{std::move(*file), range->offset, length};
}

llvm::Expected<TensorRef> tensorOf(const onnx::TensorProto& message,
                                   std::shared_ptr<const void> owner,
                                   std::shared_ptr<ExternalFiles> files) {
  llvm::SmallVector<int64_t, 4> extents(message.dims().begin(), message.dims().end());
  llvm::Expected<int64_t> count = checkedElementCount(extents);
  if (!count)
    return count.takeError();
  if (message.has_segment())
    return unsupported("a tensor is split into segments");
  if (!isExternal(message))
    if (llvm::Error error =
            checkInlineSize(message, static_cast<ElementType>(message.data_type()), *count))
      return error;
  return std::make_shared<MessageTensor>(message, std::move(extents), *count, std::move(owner),
                                         std::move(files));
}

const onnx::TensorProto* messageOf(const TensorData& tensor) {
  const auto* read = dynamic_cast<const MessageTensor*>(&tensor);
  return read ? &read->message() : nullptr;
}

std::optional<FilePlace> filePlaceOf(const TensorData& tensor) {
  const auto* stored = dynamic_cast<const MessageTensor*>(&tensor);
  return stored ? stored->filePlace() : std::nullopt;
}

llvm::Error copyExternal(const TensorData& tensor, OutputFile& file) {
  const auto* read = dynamic_cast<const MessageTensor*>(&tensor);
  assert(read && isExternal(read->message()));
  return read->copyTo(file);
}

namespace {

void writeTensorType(const TensorData& tensor, onnx::TensorProto& message) {
  for (int64_t extent : tensor.shape())
    message.add_dims(extent);
  message.set_data_type(static_cast<int32_t>(tensor.elementType()));
}

} // namespace

llvm::Error writeTensor(const TensorData& tensor, onnx::TensorProto& message) {
  constexpr auto most = static_cast<size_t>(std::numeric_limits<int>::max());
  std::string& raw = *message.mutable_raw_data();
  llvm::Error error = tensor.stream([&](std::span<const std::byte> piece) -> llvm::Error {
    if (piece.size() > most - raw.size())
      return unsupported("a tensor of {} bytes does not fit in an ONNX file",
                         tensor.byteSize().value_or(0));
    if (raw.empty())
      raw.reserve(static_cast<size_t>(tensor.byteSize().value_or(0)));
    raw.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return llvm::Error::success();
  });
  if (!error)
    writeTensorType(tensor, message);
  return error;
}

void setExternalRange(const std::string& location, int64_t offset, int64_t length,
                      onnx::TensorProto& message) {
  message.clear_external_data();
  message.set_data_location(onnx::TensorProto::EXTERNAL);
  auto add = [&](const char* key, std::string value) {
    onnx::StringStringEntryProto& entry = *message.add_external_data();
    entry.set_key(key);
    entry.set_value(std::move(value));
  };
  add("location", location);
  add("offset", std::to_string(offset));
  add("length", std::to_string(length));
}

void writeExternalTensor(const TensorData& tensor, const std::string& location, int64_t offset,
                         onnx::TensorProto& message) {
  writeTensorType(tensor, message);
  setExternalRange(location, offset, *tensor.byteSize(), message);
}

} // namespace kvopt::ir
