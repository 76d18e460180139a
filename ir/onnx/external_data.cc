// Placement and streaming of external tensors.
#include "ir/onnx/external_data.h"

#include "ir/onnx/tensor.h"
#include "support/diagnostic.h"

#include <algorithm>

namespace kvopt::ir {

llvm::Expected<int64_t> ExternalData::append(const TensorData& tensor, int64_t bytes, bool isCopy) {
  int64_t padded = 0;
  int64_t end = 0;
  if (__builtin_add_overflow(size, alignment - 1, &padded) ||
      __builtin_add_overflow(padded / alignment * alignment, bytes, &end))
    return invalid("the external data's size does not fit in 64 bits");
  const int64_t offset = padded / alignment * alignment;
  offsets[&tensor] = offset;
  entries.push_back({&tensor, offset, isCopy});
  size = end;
  return offset;
}

llvm::Expected<std::optional<int64_t>> ExternalData::place(const TensorData& tensor) {
  const std::optional<int64_t> bytes = tensor.byteSize();
  if (name.empty() || !bytes || *bytes < least)
    return std::nullopt;
  const auto known = offsets.find(&tensor);
  if (known != offsets.end())
    return known->second;
  auto offset = append(tensor, *bytes, false);
  if (!offset)
    return offset.takeError();
  return *offset;
}

llvm::Expected<int64_t> ExternalData::placeCopy(const TensorData& tensor) {
  assert(!name.empty() && messageOf(tensor) && "a tensor of the source");
  auto range = externalRangeOf(*messageOf(tensor));
  if (!range)
    return range.takeError();
  auto bytes = checkedByteSize(tensor.elementType(), tensor.elementCount());
  if (!bytes)
    return bytes.takeError();
  const std::string key = formatted("{}:{}:{}", range->offset, *bytes, range->location);
  const auto known = copiedRanges.find(key);
  if (known != copiedRanges.end())
    return known->second;
  auto offset = append(tensor, *bytes, true);
  if (offset)
    copiedRanges[key] = *offset;
  return offset;
}

llvm::Error ExternalData::write(OutputFile& file) const {
  if (isHole)
    return file.skip(size);
  // Reserving space would fill holes of the source.
  if (std::none_of(entries.begin(), entries.end(), [](const Entry& entry) { return entry.isCopy; }))
    if (llvm::Error error = file.reserve(size))
      return error;
  int64_t written = 0;
  for (const Entry& entry : entries) {
    if (llvm::Error error = file.skip(entry.offset - written))
      return error;
    llvm::Error error = entry.isCopy ? copyExternal(*entry.tensor, file)
                                     : entry.tensor->stream([&](std::span<const std::byte> piece) {
                                         if (onWritten)
                                           onWritten(piece.size());
                                         return file.write(piece);
                                       });
    if (error)
      return error;
    if (entry.isCopy && onWritten)
      onWritten(static_cast<size_t>(*entry.tensor->byteSize()));
    written = entry.offset + *entry.tensor->byteSize();
  }
  return llvm::Error::success();
}

} // namespace kvopt::ir
