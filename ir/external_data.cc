// Placement and streaming of external tensors.
#include "ir/external_data.h"

#include "ir/diagnostic.h"

#include <algorithm>

namespace kvopt {

llvm::Expected<std::optional<int64_t>> ExternalData::place(const TensorData& tensor) {
  const std::optional<int64_t> bytes = tensor.byteSize();
  if (name.empty() || !bytes || *bytes < least)
    return std::nullopt;
  const auto known = offsets.find(&tensor);
  if (known != offsets.end())
    return known->second;
  int64_t padded = 0;
  int64_t end = 0;
  if (__builtin_add_overflow(size, alignment - 1, &padded) ||
      __builtin_add_overflow(padded / alignment * alignment, *bytes, &end))
    return invalid("the external data's size does not fit in 64 bits");
  const int64_t offset = padded / alignment * alignment;
  offsets[&tensor] = offset;
  entries.push_back({&tensor, offset});
  size = end;
  return offset;
}

llvm::Error ExternalData::write(OutputFile& file) const {
  if (llvm::Error error = file.reserve(size))
    return error;
  const std::vector<std::byte> zeros(static_cast<size_t>(alignment));
  int64_t written = 0;
  for (const Entry& entry : entries) {
    const auto gap = static_cast<size_t>(entry.offset - written);
    assert(gap < zeros.size() && "tensors follow each other");
    if (llvm::Error error = file.write(std::span(zeros).first(gap)))
      return error;
    if (llvm::Error error = entry.tensor->stream(
            [&](std::span<const std::byte> piece) { return file.write(piece); }))
      return error;
    written = entry.offset + *entry.tensor->byteSize();
  }
  return llvm::Error::success();
}

} // namespace kvopt
