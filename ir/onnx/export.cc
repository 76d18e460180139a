// Writing of models to files and bytes.
#include "ir/onnx/export.h"

#include "ir/onnx/tensor_messages.h"
#include "ir/onnx/writer.h"
#include "ir/verify/model_gate.h"
#include "support/diagnostic.h"
#include "support/file_access.h"
#include "support/output_file.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <filesystem>
#include <limits>

namespace kvopt::ir {

namespace fs = std::filesystem;

namespace {

/// Output stream for protobuf that writes to an OutputFile.
class OutputFileStream final : public google::protobuf::io::CopyingOutputStream {
public:
  explicit OutputFileStream(OutputFile& output) : file(output) {}
  bool Write(const void* buffer, int size) override {
    if (failure)
      return false;
    const auto* bytes = static_cast<const std::byte*>(buffer);
    if (llvm::Error error = file.write(std::span(bytes, static_cast<size_t>(size))))
      failure = takeDiagnostic(std::move(error));
    return !failure;
  }
  llvm::Error takeError() {
    return failure ? makeError(std::move(*failure)) : llvm::Error::success();
  }

private:
  OutputFile& file;
  std::optional<Diagnostic> failure;
};

/// Whether the model is to be written as the bytes from which it was read.
bool isItsFile(const Model& model, const ExportOptions& options) {
  return model.source() && !options.reserialize && !model.isEdited() && headerMatchesSource(model);
}

llvm::Error checkSize(uint64_t size) {
  if (size > static_cast<uint64_t>(std::numeric_limits<int>::max()))
    return unsupported("the model takes {} bytes; an ONNX file is limited to 2 GiB", size)
        .hint("keep the weights in external data files");
  return llvm::Error::success();
}

llvm::Error writeMessage(const google::protobuf::MessageLite& message, OutputFile& file) {
  OutputFileStream stream(file);
  bool written = false;
  {
    google::protobuf::io::CopyingOutputStreamAdaptor adaptor(&stream);
    written = message.SerializePartialToZeroCopyStream(&adaptor) && adaptor.Flush();
  }
  if (llvm::Error error = stream.takeError())
    return error;
  if (!written)
    return ioError("cannot serialize").file(file.path());
  return llvm::Error::success();
}

std::string orCurrent(llvm::StringRef folder) { return folder.empty() ? "." : folder.str(); }

/// Whether a model in `to` that refers to `location` would find that file.
bool finds(const fs::path& to, const std::string& location, const std::string& file) {
  auto there = MappedFile::openBeneath(to.string(), location);
  if (!there) {
    llvm::consumeError(there.takeError());
    return false;
  }
  return sameFile((*there)->path(), file);
}

/// Location beneath `to` of the file that has `location` in the folder `from`; nullopt if it is not
/// beneath `to`.
std::optional<std::string> locationBeneath(const ConfinedFolder& from, const std::string& location,
                                           const fs::path& to) {
  const std::string file = from.locate(location);
  if (finds(to, location, file))
    return location; // a hard link
  std::error_code error;
  for (const fs::path& path :
       {fs::canonical(orCurrent(from.path), error) / location, fs::canonical(file, error)}) {
    std::string moved = path.lexically_normal().lexically_relative(to).string();
    if (!error && finds(to, moved, file))
      return moved;
  }
  return std::nullopt;
}

/// Locations that change when a model is written to another folder than it was read from, or out of
/// the store to which its own path links.
llvm::Expected<llvm::StringMap<std::string>> movedLocations(const Model& model,
                                                            const std::string& path,
                                                            llvm::ArrayRef<std::string> kept,
                                                            llvm::ArrayRef<std::string> goAlong) {
  llvm::StringMap<std::string> moved;
  const std::string from = orCurrent(model.folder.path);
  const std::string to = orCurrent(llvm::sys::path::parent_path(path));
  if (kept.empty() || (sameFile(from, to) && model.folder.store.empty()))
    return moved;
  std::error_code error;
  const fs::path realTo = fs::canonical(to, error);
  if (error)
    return ioError("cannot open the folder '{}': {}", to, error.message()).file(path);
  for (const std::string& name : kept) {
    if (llvm::is_contained(goAlong, name))
      continue;
    std::optional<std::string> location = locationBeneath(model.folder, name, realTo);
    if (!location)
      return usageError("the model's external data '{}' in '{}' is not beneath the folder of "
                        "the output, and would not be found from there",
                        name, from)
          .file(path)
          .hint(model.folder.store.empty()
                    ? "have it copied or inlined (--external-data copy, inline), or write the "
                      "model into that folder"
                    : "have it copied or inlined (--external-data copy, inline)");
    if (*location != name)
      moved[name] = std::move(*location);
  }
  return moved;
}

/// Fails if the written file would replace a part of the model.
llvm::Error checkOverwriting(const Model& model, const std::string& path, const std::string& fresh,
                             FileAccess& access) {
  if (fresh.find('/') != std::string::npos || fresh == llvm::sys::path::filename(path))
    return usageError("'{}' cannot be the name of its external data", fresh).file(path);
  if (llvm::Error error = access.ensureWrites(path, "the exported model"))
    return error;
  if (!fresh.empty())
    if (llvm::Error error =
            access.ensureWrites(pathBeside(path, fresh), "the external data of the exported model"))
      return error;
  if (llvm::Error error = registerFiles(model, access))
    return error;
  return access.checkOutputs();
}

/// Fails for external contents that are not moved, such as those of sparse tensors, which would be
/// lost.
llvm::Error checkMoved(const onnx::ModelProto& message, const ExternalData& external) {
  std::string left;
  if (external.placement == ExternalPlacement::Keep)
    return llvm::Error::success();
  forEachTensor(message, [&](const onnx::TensorProto& tensor) {
    if (!isExternal(tensor))
      return;
    auto range = externalRangeOf(tensor);
    const bool isMoved = range && external.placement == ExternalPlacement::Copy &&
                         range->location == external.fileName();
    if (!range)
      llvm::consumeError(range.takeError());
    if (!isMoved)
      left = tensor.name();
  });
  if (!left.empty())
    return unsupported("the external data of '{}' cannot be moved", left)
        .hint("keep it where it is");
  return llvm::Error::success();
}

/// Checks that contents which become part of the file fit, before any of them is read.
llvm::Error checkInlineSize(const onnx::ModelProto& kept) {
  uint64_t total = kept.ByteSizeLong();
  forEachTensor(kept, [&](const onnx::TensorProto& tensor) {
    llvm::SmallVector<int64_t, 4> extents(tensor.dims().begin(), tensor.dims().end());
    auto count = checkedElementCount(extents);
    auto bytes = count ? checkedByteSize(static_cast<ElementType>(tensor.data_type()), *count)
                       : count.takeError();
    if (!bytes)
      llvm::consumeError(bytes.takeError()); // reported when it is read
    else if (isExternal(tensor))
      total += std::min<uint64_t>(static_cast<uint64_t>(*bytes), uint64_t{1} << 48);
  });
  return checkSize(total);
}

llvm::Expected<OutputFile> writtenExternalData(const ExternalData& external,
                                               const std::string& path, FileAccess& access) {
  llvm::Expected<OutputFile> file = OutputFile::create(path, access);
  if (!file)
    return file.takeError();
  if (llvm::Error error = external.write(*file))
    return withFile(std::move(error), path);
  return file;
}

llvm::Expected<OutputFile> writtenModel(const Model& model, const onnx::ModelProto& message,
                                        bool isAsRead, const std::string& path,
                                        FileAccess& access) {
  llvm::Expected<OutputFile> file = OutputFile::create(path, access);
  if (!file)
    return file.takeError();
  if (llvm::Error error =
          isAsRead ? file->write(model.source()->bytes) : writeMessage(message, *file))
    return error;
  return file;
}

} // namespace

llvm::Expected<std::string> exportModelBytes(const Model& model, const ExportOptions& options) {
  if (isItsFile(model, options)) {
    std::span<const std::byte> bytes = model.source()->bytes;
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  google::protobuf::Arena arena;
  ExternalData external("", 0);
  if (llvm::Error error = checkExtents(model.graph()))
    return error;
  auto message = ModelWriter(model, arena, external).write();
  if (!message)
    return message.takeError();
  if (llvm::Error error = checkSize((*message)->ByteSizeLong()))
    return error;
  std::string bytes;
  if (!(*message)->SerializePartialToString(&bytes))
    return ioError("cannot serialize");
  return bytes;
}

llvm::Error checkExport(const Model& model, const std::string& path, const ExportOptions& options,
                        FileAccess& access) {
  if (llvm::Error error = checkOverwriting(model, path, options.externalFile, access))
    return error;
  if (options.placement != ExternalPlacement::Keep)
    return llvm::Error::success();
  return movedLocations(model, path, externalLocationsOf(model), options.goAlong).takeError();
}

namespace {

/// Decides for external data of the source where it is in a model that is written to `path`.
llvm::Error placeSource(const Model& model, const std::string& path, const ExportOptions& options,
                        ExternalData& external) {
  const std::vector<std::string> kept = externalLocationsOf(model);
  if (!kept.empty())
    external.placement = options.placement;
  if (external.placement != ExternalPlacement::Keep)
    return llvm::Error::success();
  auto moved = movedLocations(model, path, kept, options.goAlong);
  if (!moved)
    return moved.takeError();
  external.movedLocations = std::move(*moved);
  return llvm::Error::success();
}

/// Message of an edited model, with locations in `external`.
llvm::Expected<const onnx::ModelProto*>
messageFor(const Model& model, google::protobuf::Arena& arena, ExternalData& external) {
  if (llvm::Error error = checkExtents(model.graph()))
    return error;
  auto made = ModelWriter(model, arena, external).write();
  if (!made)
    return made.takeError();
  if (llvm::Error error = checkSize((*made)->ByteSizeLong()))
    return error;
  if (llvm::Error error = checkMoved(**made, external))
    return error;
  return made;
}

} // namespace

llvm::Error prepareExport(const Model& model, const std::string& path, const ExportOptions& options,
                          OutputFiles& files) {
  if (llvm::Error error = checkOverwriting(model, path, options.externalFile, files.access()))
    return error;
  ExternalData external(options.externalFile, options.externalBytes);
  external.onWritten = options.onWritten;
  external.isHole = options.externalHole;
  if (llvm::Error error = placeSource(model, path, options, external))
    return error;
  google::protobuf::Arena arena;
  const bool asRead = !external.movesSource() && isItsFile(model, options);
  const onnx::ModelProto* message = asRead ? model.source()->message : nullptr;
  if (external.placement == ExternalPlacement::Inline) {
    ExternalData untouched("", 0);
    auto shared = ModelWriter(model, arena, untouched).write();
    if (!shared)
      return withFile(shared.takeError(), path);
    if (llvm::Error error = checkInlineSize(**shared))
      return withFile(std::move(error), path);
  }
  if (!asRead) {
    auto made = messageFor(model, arena, external);
    if (!made)
      return withFile(made.takeError(), path);
    message = *made;
  }
  if (external.fileBytes() != 0) {
    auto data =
        writtenExternalData(external, pathBeside(path, external.fileName()), files.access());
    if (!data)
      return data.takeError();
    files.add(std::move(*data));
  }
  auto file = writtenModel(model, *message, asRead, path, files.access());
  if (!file)
    return file.takeError();
  files.add(std::move(*file));
  return llvm::Error::success();
}

FamilyExport::FamilyExport(ExportOptions options, OutputFiles& together)
    : settings(std::move(options)), files(together),
      external(settings.externalFile, settings.externalBytes) {
  assert(!settings.externalFile.empty() && settings.placement != ExternalPlacement::Inline);
  external.takesInline = true;
}

llvm::Error FamilyExport::add(Model& model, const std::string& path) {
  if (llvm::Error error = checkOverwriting(model, path, settings.externalFile, files.access()))
    return error;
  if (llvm::Error error = placeSource(model, path, settings, external))
    return error;
  return write(model, path);
}

llvm::Error FamilyExport::addSubmodel(Model& model, const std::string& path) {
  return write(model, path);
}

llvm::Error FamilyExport::write(Model& model, const std::string& path) {
  forEachGraph(model.graph(), [&](Graph& graph) {
    for (const std::unique_ptr<Value>& initializer : graph.initializers())
      constants.push_back(initializer->initializer());
    for (const std::unique_ptr<Value>& input : graph.inputs())
      constants.push_back(input->initializer());
  });
  dataPath = pathBeside(path, settings.externalFile);
  google::protobuf::Arena arena;
  auto message = messageFor(model, arena, external);
  if (!message)
    return withFile(message.takeError(), path);
  auto file = writtenModel(model, **message, false, path, files.access());
  if (!file)
    return file.takeError();
  models.push_back(std::move(*file));
  return llvm::Error::success();
}

llvm::Error FamilyExport::finish() {
  if (external.fileBytes() != 0) {
    auto data = writtenExternalData(external, dataPath, files.access());
    if (!data)
      return data.takeError();
    files.add(std::move(*data));
  }
  for (OutputFile& file : models)
    files.add(std::move(file));
  models.clear();
  return llvm::Error::success();
}

llvm::Error exportModel(const Model& model, const std::string& path, const ExportOptions& options,
                        FileAccess& access) {
  OutputFiles files(access);
  if (llvm::Error error = prepareExport(model, path, options, files))
    return error;
  return files.commit();
}

llvm::Error exportModel(const Model& model, const std::string& path, const ExportOptions& options) {
  FileAccess access;
  return exportModel(model, path, options, access);
}

llvm::Error exportTensorFile(const TensorData& tensor, llvm::StringRef name, OutputFile file) {
  const std::string& path = file.path();
  onnx::TensorProto message;
  const onnx::TensorProto* original = messageOf(tensor);
  if (original && original->data_location() != onnx::TensorProto::EXTERNAL)
    message.CopyFrom(*original);
  else if (llvm::Error error = writeTensor(tensor, message))
    return withFile(std::move(error), path);
  message.set_name(name.str());
  if (llvm::Error error = checkSize(message.ByteSizeLong()))
    return withFile(std::move(error), path);
  if (llvm::Error error = writeMessage(message, file))
    return error;
  return file.commit();
}

} // namespace kvopt::ir
