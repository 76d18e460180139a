// Writing ONNX files.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

#include <string>

namespace kvopt {

struct ExportOptions {
  /// Serialize anew even if nothing was edited (the bytes must come out the same).
  bool reserialize = false;
  /// The name of a file, in the folder of the model's, that contents of at least `externalBytes`
  /// go to, when they do not come from the file the model was read from. Empty: all is inline. Only
  /// for exportModel.
  std::string externalFile;
  int64_t externalBytes = 1024;
};

/// The model as bytes of an ONNX file. What was not edited is written from the messages it was read
/// from, unknown fields included; a model that nobody edited is its file, byte for byte.
/// Fails for models whose inline data exceeds protobuf's 2 GiB.
llvm::Expected<std::string> exportModelBytes(const Model& model, const ExportOptions& options = {});

/// Writes to a temporary name beside `path` and renames. Refuses to overwrite the model's own file.
/// External data is kept by reference; when `path` is in another folder than the source, locations
/// cannot be kept and the call fails unless the model has no external data. A file of external data
/// that is written appears together with the model; its tensors are streamed, each at a multiple of
/// 4096 bytes, and a disk without room for all of it is an error before anything is written.
llvm::Error exportModel(const Model& model, const std::string& path,
                        const ExportOptions& options = {});

/// Writes one serialized TensorProto.
llvm::Error exportTensorFile(const TensorData& tensor, llvm::StringRef name,
                             const std::string& path);

} // namespace kvopt
