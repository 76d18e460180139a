// Writing ONNX files.
#pragma once

#include "ir/onnx/external_data.h"
#include "ir/onnx/model_files.h"

#include "llvm/Support/Error.h"

#include <string>

namespace kvopt::ir {

struct ExportOptions {
  /// Serialize anew even if nothing was edited (the bytes must come out the same).
  bool reserialize = false;
  /// The name of a file, in the folder of the model's, that contents of at least `externalBytes`
  /// go to, when they do not come from the file the model was read from. Empty: all is inline. Only
  /// for exportModel.
  std::string externalFile;
  int64_t externalBytes = 1024;
  /// That file is one hole, all zeros, instead of the tensors' contents: models of any size for
  /// tests.
  bool externalHole = false;
  /// What becomes of contents that the model's source has in files beside it. Copy needs the name
  /// `externalFile`. Only for exportModel.
  ExternalPlacement placement = ExternalPlacement::Keep;
};

/// The model as bytes of an ONNX file. What was not edited is written from the messages it was read
/// from, unknown fields included; a model that nobody edited is its file, byte for byte.
/// Fails for models whose inline data exceeds protobuf's 2 GiB.
llvm::Expected<std::string> exportModelBytes(const Model& model, const ExportOptions& options = {});

/// Writes a file that appears whole or not at all, as an output of `access`. Refuses to overwrite
/// an input there, and any file that the model consists of (filesOf). A file of external data that
/// is written appears together with the model. Its tensors each start at a multiple of 4096 bytes;
/// new ones are streamed, and where there are no others, a disk without room for all is an error
/// before anything is written.
///
/// Placement of what the source has in other files:
/// - Keep: not a byte of it is read. Where `path` is in another folder, locations are adapted; the
///   call fails for data outside that folder, because a location must be a path beneath it.
/// - Copy: what the model uses goes to `externalFile`, by the kernel, holes staying holes.
/// - Inline: fails before anything is read when the result exceeds 2 GiB.
llvm::Error exportModel(const Model& model, const std::string& path, const ExportOptions& options,
                        FileAccess& access);
/// The same for a program that reads and writes nothing else.
llvm::Error exportModel(const Model& model, const std::string& path,
                        const ExportOptions& options = {});

/// Writes the same files without putting them in their places, which `files.commit()` does.
llvm::Error prepareExport(const Model& model, const std::string& path, const ExportOptions& options,
                          OutputFiles& files);

/// Models of one source that are written beside each other, with what is large in one file that all
/// of them refer to: initializers that the source has inline go there too. Constants are the same
/// where they are the same object. Needs the name `externalFile`; external data of the source is
/// kept or copied.
class FamilyExport {
public:
  /// All files are added to `files`, in the end.
  FamilyExport(ExportOptions options, OutputFiles& files);
  FamilyExport(const FamilyExport&) = delete;
  FamilyExport& operator=(const FamilyExport&) = delete;

  /// Writes a model's file without putting it in its place. The model may be edited afterwards.
  llvm::Error add(Model& model, const std::string& path);
  /// Writes a copy of a part of a model that was added (copySharingConstants). That the file is
  /// none that the model consists of is the caller's to check.
  llvm::Error addSubmodel(Model& model, const std::string& path);
  /// Writes the file of external data; then all are ready for `files.commit()`. Once, at the end.
  llvm::Error finish();

private:
  llvm::Error write(Model& model, const std::string& path);

  ExportOptions settings;
  OutputFiles& files;
  ExternalData external;
  std::string dataPath;
  std::vector<OutputFile> models;
  std::vector<TensorRef> constants; ///< of all models: edits may drop some
};

/// What exportModel would refuse because of where it is to write: known before a model is edited.
llvm::Error checkExport(const Model& model, const std::string& path, const ExportOptions& options,
                        FileAccess& access);

/// Writes one serialized TensorProto, and puts the file in its place.
llvm::Error exportTensorFile(const TensorData& tensor, llvm::StringRef name, OutputFile file);

} // namespace kvopt::ir
