// Models whose external data comes from a function.
#include "ir/onnx/inline_data.h"

#include "ir/onnx/message_parser.h"
#include "ir/onnx/tensor.h"
#include "ir/onnx/tensor_messages.h"
#include "support/diagnostic.h"

#include "llvm/Support/Path.h"

#include <limits>
#include <vector>

namespace kvopt::ir {
namespace {

/// Maximum size of a message.
constexpr uint64_t maxBytes = std::numeric_limits<int>::max();

/// A tensor to fill, and the range that has its contents.
struct InlinedTensor {
  onnx::TensorProto* message = nullptr;
  ExternalRange range;
  uint64_t bytes = 0;
};

llvm::Error checkLocation(llvm::StringRef location) {
  if (location.contains('\0'))
    return invalid("the location of external data has a null character");
  if (llvm::sys::path::is_absolute(location))
    return invalid("the location '{}' of external data is absolute", location);
  for (auto part = llvm::sys::path::begin(location); part != llvm::sys::path::end(location); ++part)
    if (*part == "..")
      return invalid("the location '{}' of external data leaves the model's folder", location);
  return llvm::Error::success();
}

llvm::Expected<InlinedTensor> toInline(const onnx::TensorProto& message) {
  llvm::Expected<ExternalRange> range = externalRangeOf(message);
  if (!range)
    return range.takeError();
  if (llvm::Error error = checkLocation(range->location))
    return error;
  const llvm::SmallVector<int64_t, 4> extents(message.dims().begin(), message.dims().end());
  llvm::Expected<int64_t> count = checkedElementCount(extents);
  if (!count)
    return count.takeError();
  llvm::Expected<int64_t> needed =
      checkedByteSize(static_cast<ElementType>(message.data_type()), *count);
  if (!needed)
    return needed.takeError();
  const auto bytes = static_cast<uint64_t>(*needed);
  if (range->length && *range->length != bytes)
    return invalid("the tensor has {} bytes of external data, its shape and type need {}",
                   *range->length, bytes)
        .file(range->location);
  if (range->offset > std::numeric_limits<uint64_t>::max() - bytes)
    return invalid("external data has the offset '{}'", range->offset).file(range->location);
  // It belongs to a message that is not constant.
  return InlinedTensor{const_cast<onnx::TensorProto*>(&message), std::move(*range), bytes};
}

llvm::Error ofTensor(llvm::Error error, const onnx::TensorProto& message) {
  Diagnostic diagnostic = takeDiagnostic(std::move(error));
  diagnostic.value = message.name();
  return makeError(std::move(diagnostic));
}

llvm::Error fill(InlinedTensor& tensor, ExternalReader read) {
  onnx::TensorProto& message = *tensor.message;
  std::string contents(tensor.bytes, '\0');
  if (!contents.empty()) {
    llvm::Expected<uint64_t> given =
        read(tensor.range.location, tensor.range.offset,
             std::as_writable_bytes(std::span(contents.data(), contents.size())));
    if (!given)
      return given.takeError();
    if (*given != tensor.bytes)
      return invalid("external data has {} bytes at offset {}, not {}", *given, tensor.range.offset,
                     tensor.bytes)
          .file(tensor.range.location);
  }
  message.set_raw_data(std::move(contents));
  message.clear_external_data();
  message.clear_data_location();
  return llvm::Error::success();
}

} // namespace

llvm::Expected<std::string> withDataInline(std::span<const std::byte> bytes, ExternalReader read) {
  if (llvm::Error error = checkMessageSize(bytes.size()))
    return error;
  onnx::ModelProto model;
  if (llvm::Error error = parseModel(bytes, model))
    return error;
  std::vector<const onnx::TensorProto*> messages;
  forEachTensor(model, [&](const onnx::TensorProto& message) {
    if (isExternal(message))
      messages.push_back(&message);
  });
  std::vector<InlinedTensor> tensors;
  uint64_t total = bytes.size();
  for (const onnx::TensorProto* message : messages) {
    llvm::Expected<InlinedTensor> tensor = toInline(*message);
    if (!tensor)
      return ofTensor(tensor.takeError(), *message);
    total += tensor->bytes;
    if (total > maxBytes || tensor->bytes > maxBytes)
      return unsupported("with its external data the model has 2 GiB or more, which a message "
                         "cannot have")
          .hint("keep the external data in a folder");
    tensors.push_back(std::move(*tensor));
  }
  for (InlinedTensor& tensor : tensors)
    if (llvm::Error error = fill(tensor, read))
      return ofTensor(std::move(error), *tensor.message);
  return model.SerializePartialAsString();
}

} // namespace kvopt::ir
