// Writing ONNX files.
#pragma once

#include "ir/onnx/external_data.h"
#include "ir/onnx/model_files.h"

#include "llvm/Support/Error.h"

#include <functional>
#include <string>

namespace kvopt::ir {

struct ExportOptions {
  /// Serialize again even if nothing was edited (the bytes must be the same).
  bool reserialize = false;
  /// Name of a file in the model's folder for contents of at least `externalBytes`, except those
  /// that come from the model's source file. Empty: all contents are inline. Only for exportModel.
  std::string externalFile;
  int64_t externalBytes = 1024;
  /// Write a hole of zeros instead of the contents: gives tests models of any size.
  bool externalHole = false;
  /// Called with the number of bytes of that file that were written since the last call; may be
  /// empty.
  std::function<void(size_t bytes)> onWritten;
  /// Placement of contents that the model's source stores in external files. Copy requires the name
  /// `externalFile`. Only for exportModel.
  ExternalPlacement placement = ExternalPlacement::Keep;
  /// For Keep: locations of external data that the caller puts next to the model in the same run,
  /// with the same names.
  std::vector<std::string> goAlong;
};

/// The model as bytes of an ONNX file. Parts without edits are written from their source messages,
/// including unknown fields; a model without edits is written byte for byte. Fails for models whose
/// inline data exceeds protobuf's limit of 2 GiB.
llvm::Expected<std::string> exportModelBytes(const Model& model, const ExportOptions& options = {});

/// Writes a file that appears completely or not at all, as an output of `access`. Refuses to
/// overwrite an input of `access` or a file that belongs to the model (filesOf). A file of external
/// data that is written appears together with the model. Each of its tensors starts at a multiple
/// of 4096 bytes. New tensors are streamed; if all tensors are new, a disk without enough space is
/// an error before anything is written.
///
/// Placement of contents that the source stores in other files:
/// - Keep: they are not read. If `path` is in another folder, locations are adapted; the call fails
///   for data outside that folder that neither goes along nor has a hard link in it, because a
///   location must be a path beneath the folder.
/// - Copy: the kernel copies the contents that the model uses to `externalFile`, and preserves
///   holes.
/// - Inline: fails before anything is read if the result exceeds 2 GiB.
llvm::Error exportModel(const Model& model, const std::string& path, const ExportOptions& options,
                        FileAccess& access);
/// The same for a program that reads and writes no other files.
llvm::Error exportModel(const Model& model, const std::string& path,
                        const ExportOptions& options = {});

/// Writes the same files without putting them in place; `files.commit()` does.
llvm::Error prepareExport(const Model& model, const std::string& path, const ExportOptions& options,
                          OutputFiles& files);

/// Writes models of one source next to each other. Large contents are in one file to which all of
/// them refer, including initializers that are inline in the source. Constants are shared if they
/// are the same object. Requires the name `externalFile`; external data of the source is kept or
/// copied.
class FamilyExport {
public:
  /// All files are added to `files` at the end.
  FamilyExport(ExportOptions options, OutputFiles& files);
  FamilyExport(const FamilyExport&) = delete;
  FamilyExport& operator=(const FamilyExport&) = delete;

  /// Writes a model's file without putting it in place. The model may be edited afterwards.
  llvm::Error add(Model& model, const std::string& path);
  /// Writes a copy of a part of a model that was added (copySharingConstants). The caller must
  /// check that the file does not belong to the model.
  llvm::Error addSubmodel(Model& model, const std::string& path);
  /// Writes the file of external data; then all files are ready for `files.commit()`. Call it once,
  /// at the end.
  llvm::Error finish();

private:
  llvm::Error write(Model& model, const std::string& path);

  ExportOptions settings;
  OutputFiles& files;
  ExternalData external;
  std::string dataPath;
  std::vector<OutputFile> models;
  std::vector<TensorRef> constants; ///< constants of all models, because edits may drop some
};

/// Fails if exportModel would fail because of the path. Can be called before a model is edited.
llvm::Error checkExport(const Model& model, const std::string& path, const ExportOptions& options,
                        FileAccess& access);

/// Writes one serialized TensorProto and puts the file in place.
llvm::Error exportTensorFile(const TensorData& tensor, llvm::StringRef name, OutputFile file);

} // namespace kvopt::ir
