// Tensors whose contents are in ONNX messages or in external files. Private to import and export.
#pragma once

#include "ir/tensor.h"
#include "support/mapped_file.h"
#include "support/output_file.h"

#include "kvopt_onnx.pb.h"

#include "llvm/ADT/StringMap.h"

#include <mutex>

namespace kvopt::ir {

/// External data files of one model, each opened once, on first use. Thread-safe.
class ExternalFiles {
public:
  explicit ExternalFiles(ConfinedFolder modelFolder) : folder(std::move(modelFolder)) {}
  llvm::Expected<std::shared_ptr<const MappedFile>> open(const std::string& location);
  /// MappedFile::expectFewReads for all files, now and later.
  void expectFewReads();
  llvm::Expected<ConfinedFolder::File> openDescriptor(const std::string& location) const {
    return folder.open(location);
  }

private:
  ConfinedFolder folder;
  std::mutex mutex;
  llvm::StringMap<std::shared_ptr<const MappedFile>> files;
  bool expectsFewReads = false;
};

/// Location of a tensor's external data, according to its message.
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
/// Range of a file with the `size` bytes of a tensor's external data. Fails if the file is
/// unavailable, or if the range has another length or exceeds the file. Reads nothing.
llvm::Expected<ExternalSlice> externalSliceOf(const onnx::TensorProto& message, uint64_t size,
                                              ExternalFiles& files);

/// A tensor over `message`, which lives as long as `owner`. Fails for extents that are negative or
/// whose product overflows, for inline contents whose size does not match the extents, and for
/// segments. External data is not accessed before `bytes()`.
llvm::Expected<TensorRef> tensorOf(const onnx::TensorProto& message,
                                   std::shared_ptr<const void> owner,
                                   std::shared_ptr<ExternalFiles> files);

/// Message that holds a tensor; null for tensors that were not read from a message.
const onnx::TensorProto* messageOf(const TensorData& tensor);

/// Appends the contents of a tensor with external data to a file.
llvm::Error copyExternal(const TensorData& tensor, OutputFile& file);

/// Writes type, extents and contents to an empty message.
llvm::Error writeTensor(const TensorData& tensor, onnx::TensorProto& message);

/// Declares in a message that its contents are in `location`, starting at `offset`.
void setExternalRange(const std::string& location, int64_t offset, int64_t length,
                      onnx::TensorProto& message);

/// Writes type, extents and the range in `location` to an empty message. Requires a packed form.
void writeExternalTensor(const TensorData& tensor, const std::string& location, int64_t offset,
                         onnx::TensorProto& message);

} // namespace kvopt::ir
