// Tensors that read their contents out of ONNX messages or out of the files these name. Private to
// import and export.
#pragma once

#include "ir/tensor.h"
#include "support/mapped_file.h"
#include "support/output_file.h"

#include "kvopt_onnx.pb.h"

#include "llvm/ADT/StringMap.h"

#include <mutex>

namespace kvopt::ir {

/// The external data files of one model, each opened once, when first asked for. Thread-safe.
class ExternalFiles {
public:
  explicit ExternalFiles(ConfinedFolder modelFolder) : folder(std::move(modelFolder)) {}
  llvm::Expected<std::shared_ptr<const MappedFile>> open(const std::string& location);
  llvm::Expected<ConfinedFolder::File> openDescriptor(const std::string& location) const {
    return folder.open(location);
  }

private:
  ConfinedFolder folder;
  std::mutex mutex;
  llvm::StringMap<std::shared_ptr<const MappedFile>> files;
};

/// Where a tensor's external data lies, as its message says.
struct ExternalRange {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};
llvm::Expected<ExternalRange> externalRangeOf(const onnx::TensorProto& message);

/// A range of a file.
struct ExternalSlice {
  std::shared_ptr<const MappedFile> file;
  uint64_t offset = 0;
  uint64_t length = 0;
};
/// The range that `size` bytes of a tensor's external data take; an error when the file is not to
/// be had, or the range has another length or leaves the file. Reads nothing.
llvm::Expected<ExternalSlice> externalSliceOf(const onnx::TensorProto& message, uint64_t size,
                                              ExternalFiles& files);

/// A tensor over `message`, which lives as long as `owner`. Errors: extents that are negative or
/// whose product overflows, inline contents that are more or fewer than the extents ask for,
/// segments. External data is not looked at before `bytes()`.
llvm::Expected<TensorRef> tensorOf(const onnx::TensorProto& message,
                                   std::shared_ptr<const void> owner,
                                   std::shared_ptr<ExternalFiles> files);

/// The message a tensor reads from; null for tensors that were not read from one.
const onnx::TensorProto* messageOf(const TensorData& tensor);

/// Appends the contents of a tensor that was read from a message, and has external data, to a file.
llvm::Error copyExternal(const TensorData& tensor, OutputFile& file);

/// Fills an empty message with type, extents and contents.
llvm::Error writeTensor(const TensorData& tensor, onnx::TensorProto& message);

/// Says in a message that its contents lie in `location`, from `offset` on.
void setExternalRange(const std::string& location, int64_t offset, int64_t length,
                      onnx::TensorProto& message);

/// Fills an empty message with type, extents and where in `location` the contents lie. Requires a
/// packed form.
void writeExternalTensor(const TensorData& tensor, const std::string& location, int64_t offset,
                         onnx::TensorProto& message);

} // namespace kvopt::ir
