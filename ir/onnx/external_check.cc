// Ranges of external data, sorted by file.
#include "ir/onnx/external_check.h"

#include "ir/onnx/source.h"
#include "support/diagnostic.h"

#include <map>

namespace kvopt::ir {
namespace {

struct Range {
  uint64_t first = 0;
  uint64_t end = 0;
  const onnx::TensorProto* tensor = nullptr;
};

struct FileRanges {
  std::string path;
  std::vector<Range> ranges;
};

class ExternalCheck {
public:
  explicit ExternalCheck(ExternalFiles& externalFiles) : files(externalFiles) {}

  llvm::Error add(const onnx::TensorProto& message) {
    llvm::SmallVector<int64_t, 4> extents(message.dims().begin(), message.dims().end());
    llvm::Expected<int64_t> count = checkedElementCount(extents);
    if (!count)
      return count.takeError();
    // Tensors of unknown element types are copied but not interpreted.
    if (!bitWidth(static_cast<ElementType>(message.data_type())))
      return llvm::Error::success();
    llvm::Expected<int64_t> size =
        checkedByteSize(static_cast<ElementType>(message.data_type()), *count);
    if (!size)
      return size.takeError();
    auto slice = externalSliceOf(message, static_cast<uint64_t>(*size), files);
    if (!slice)
      return slice.takeError();
    if (slice->length == 0)
      return llvm::Error::success();
    const FileIdentity identity = slice->file->identity();
    FileRanges& file = known[{identity.device, identity.inode}];
    file.path = slice->file->path();
    file.ranges.push_back({slice->offset, slice->offset + slice->length, &message});
    return llvm::Error::success();
  }

  llvm::Error checkDisjoint() {
    for (auto& [identity, file] : known) {
      std::stable_sort(file.ranges.begin(), file.ranges.end(), [](const Range& a, const Range& b) {
        return std::pair(a.first, a.end) < std::pair(b.first, b.end);
      });
      for (size_t i = 1; i < file.ranges.size(); ++i) {
        const Range& a = file.ranges[i - 1];
        const Range& b = file.ranges[i];
        const bool isShared = a.first == b.first && a.end == b.end;
        if (!isShared && b.first < a.end)
          return invalid("external data overlaps: '{}' takes the bytes from {} to {}, '{}' those "
                         "from {} to {}",
                         a.tensor->name(), a.first, a.end, b.tensor->name(), b.first, b.end)
              .file(file.path);
      }
    }
    return llvm::Error::success();
  }

private:
  ExternalFiles& files;
  std::map<std::pair<uint64_t, uint64_t>, FileRanges> known;
};

} // namespace

llvm::Error checkExternalData(const Model& model) {
  if (!model.source())
    return llvm::Error::success();
  ExternalCheck check(*model.source()->externalFiles);
  for (const onnx::TensorProto* message : model.source()->externalTensors())
    if (llvm::Error error = check.add(*message)) {
      Diagnostic failure = takeDiagnostic(std::move(error));
      failure.value = message->name();
      return makeError(std::move(failure));
    }
  return check.checkDisjoint();
}

} // namespace kvopt::ir
