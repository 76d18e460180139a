// Models to files and bytes.
#include "ir/onnx_export.h"

#include "ir/diagnostic.h"
#include "ir/onnx_writer.h"
#include "ir/output_file.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Path.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <limits>

namespace kvopt {
namespace {

/// Collects where the external data of everything in a message lies.
class ExternalLocations {
public:
  explicit ExternalLocations(const onnx::ModelProto& model) {
    visit(model.graph());
    for (const onnx::TrainingInfoProto& training : model.training_info()) {
      visit(training.initialization());
      visit(training.algorithm());
    }
    for (const onnx::FunctionProto& function : model.functions()) {
      for (const onnx::NodeProto& node : function.node())
        visit(node);
      for (const onnx::AttributeProto& attribute : function.attribute_proto())
        visit(attribute);
    }
  }
  const llvm::StringSet<>& locations() const { return found; }

private:
  void visit(const onnx::GraphProto& graph) {
    for (const onnx::TensorProto& tensor : graph.initializer())
      visit(tensor);
    for (const onnx::SparseTensorProto& tensor : graph.sparse_initializer())
      visit(tensor);
    for (const onnx::NodeProto& node : graph.node())
      visit(node);
  }
  void visit(const onnx::NodeProto& node) {
    for (const onnx::AttributeProto& attribute : node.attribute())
      visit(attribute);
  }
  void visit(const onnx::AttributeProto& attribute) {
    if (attribute.has_t())
      visit(attribute.t());
    if (attribute.has_g())
      visit(attribute.g());
    if (attribute.has_sparse_tensor())
      visit(attribute.sparse_tensor());
    for (const onnx::TensorProto& tensor : attribute.tensors())
      visit(tensor);
    for (const onnx::GraphProto& graph : attribute.graphs())
      visit(graph);
    for (const onnx::SparseTensorProto& tensor : attribute.sparse_tensors())
      visit(tensor);
  }
  void visit(const onnx::SparseTensorProto& tensor) {
    visit(tensor.values());
    visit(tensor.indices());
  }
  void visit(const onnx::TensorProto& tensor) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL)
      return;
    for (const onnx::StringStringEntryProto& entry : tensor.external_data())
      if (entry.key() == "location")
        found.insert(entry.value());
  }

  llvm::StringSet<> found;
};

/// Lets protobuf write into an OutputFile.
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

/// Whether the bytes the model was read from are what it is to be written as.
bool isItsFile(const Model& model, const ExportOptions& options) {
  return model.source() && !options.reserialize && !model.isEdited() && headerMatchesSource(model);
}

llvm::Error checkSize(const google::protobuf::MessageLite& message) {
  size_t size = message.ByteSizeLong();
  if (size > static_cast<size_t>(std::numeric_limits<int>::max()))
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

/// The path of `name` in the folder of `path`.
std::string besides(llvm::StringRef path, llvm::StringRef name) {
  llvm::SmallString<256> file(llvm::sys::path::parent_path(path));
  llvm::sys::path::append(file, name);
  return file.str().str();
}

/// External data is referred to relative to the model's folder, and must not be overwritten.
/// `fresh` names the file that is about to be written there.
llvm::Error checkExternalData(const Model& model, const onnx::ModelProto& message,
                              const std::string& path, const std::string& fresh) {
  if (fresh.find('/') != std::string::npos || fresh == llvm::sys::path::filename(path))
    return usageError("'{}' cannot be the name of its external data", fresh).file(path);
  llvm::StringSet<> kept = ExternalLocations(message).locations();
  const bool isSourceToo =
      model.source() && ExternalLocations(*model.source()->message).locations().count(fresh) != 0;
  if (!isSourceToo)
    kept.erase(fresh);
  if (kept.empty())
    return llvm::Error::success();
  std::string from = orCurrent(model.folder);
  std::string to = orCurrent(llvm::sys::path::parent_path(path));
  if (!sameFile(from, to))
    return usageError("the model's external data lies in '{}'", from)
        .file(path)
        .hint("write the model into that folder");
  for (const auto& entry : kept) {
    std::string location = from + "/" + entry.getKey().str();
    if (sameFile(path, location) || (!fresh.empty() && sameFile(besides(path, fresh), location)))
      return usageError("this is the model's external data").file(path);
  }
  return llvm::Error::success();
}

llvm::Error writeExternalData(const ExternalData& external, const std::string& path) {
  llvm::Expected<OutputFile> file = OutputFile::create(path);
  if (!file)
    return file.takeError();
  if (llvm::Error error = external.write(*file))
    return withFile(std::move(error), path);
  return file->commit();
}

} // namespace

llvm::Expected<std::string> exportModelBytes(const Model& model, const ExportOptions& options) {
  if (isItsFile(model, options)) {
    std::span<const std::byte> bytes = model.source()->bytes;
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  google::protobuf::Arena arena;
  ExternalData external("", 0);
  auto message = ModelWriter(model, arena, external).write();
  if (!message)
    return message.takeError();
  if (llvm::Error error = checkSize(**message))
    return error;
  std::string bytes;
  if (!(*message)->SerializePartialToString(&bytes))
    return ioError("cannot serialize");
  return bytes;
}

llvm::Error exportModel(const Model& model, const std::string& path, const ExportOptions& options) {
  if (!model.path.empty() && sameFile(path, model.path))
    return usageError("would overwrite the model's own file").file(path);
  google::protobuf::Arena arena;
  ExternalData external(options.externalFile, options.externalBytes);
  bool asRead = isItsFile(model, options);
  const onnx::ModelProto* message = asRead ? model.source()->message : nullptr;
  if (!asRead) {
    auto made = ModelWriter(model, arena, external).write();
    if (!made)
      return withFile(made.takeError(), path);
    message = *made;
    if (llvm::Error error = checkSize(*message))
      return withFile(std::move(error), path);
  }
  if (llvm::Error error = checkExternalData(model, *message, path, external.fileName()))
    return error;
  llvm::Expected<OutputFile> file = OutputFile::create(path);
  if (!file)
    return file.takeError();
  if (llvm::Error error =
          asRead ? file->write(model.source()->bytes) : writeMessage(*message, *file))
    return error;
  if (external.fileBytes() != 0)
    if (llvm::Error error = writeExternalData(external, besides(path, external.fileName())))
      return error;
  return file->commit();
}

llvm::Error exportTensorFile(const TensorData& tensor, llvm::StringRef name,
                             const std::string& path) {
  onnx::TensorProto message;
  const onnx::TensorProto* original = messageOf(tensor);
  if (original && original->data_location() != onnx::TensorProto::EXTERNAL)
    message.CopyFrom(*original);
  else if (llvm::Error error = writeTensor(tensor, message))
    return withFile(std::move(error), path);
  message.set_name(name.str());
  if (llvm::Error error = checkSize(message))
    return withFile(std::move(error), path);
  llvm::Expected<OutputFile> file = OutputFile::create(path);
  if (!file)
    return file.takeError();
  if (llvm::Error error = writeMessage(message, *file))
    return error;
  return file->commit();
}

} // namespace kvopt
